-- +goose Up
-- add column "moment" to table: "conversations"
ALTER TABLE `conversations` ADD COLUMN `moment` json NULL;

-- +goose Down
-- reverse: add column "moment" to table: "conversations"
ALTER TABLE `conversations` DROP COLUMN `moment`;
