-- +goose Up
-- create "session_changes" table
CREATE TABLE `session_changes` (`id` uuid NOT NULL, `company_id` text NOT NULL, `session_id` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "sessionchange_created_at" to table: "session_changes"
CREATE INDEX `sessionchange_created_at` ON `session_changes` (`created_at`);

-- +goose Down
-- reverse: create index "sessionchange_created_at" to table: "session_changes"
DROP INDEX `sessionchange_created_at`;
-- reverse: create "session_changes" table
DROP TABLE `session_changes`;
