-- +goose Up
-- modify "conversations" table
ALTER TABLE "conversations" ADD COLUMN "moment" jsonb NULL;

-- +goose Down
-- reverse: modify "conversations" table
ALTER TABLE "conversations" DROP COLUMN "moment";
