-- +goose Up
-- disable the enforcement of foreign-keys constraints
PRAGMA foreign_keys = off;
-- create "new_events" table
CREATE TABLE `new_events` (`id` uuid NOT NULL, `company_id` text NOT NULL, `conversation_id` text NOT NULL, `sequence` integer NOT NULL, `type` text NOT NULL, `payload` blob NULL, `owner` text NULL, `message_id` text NULL, `content_hash` blob NULL, `first` bool NOT NULL DEFAULT (false), `created_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- copy rows from old table "events" to new temporary table "new_events"
INSERT INTO `new_events` (`id`, `company_id`, `conversation_id`, `sequence`, `type`, `payload`, `owner`, `message_id`, `content_hash`, `first`, `created_at`) SELECT printf('%032x', `id`), `company_id`, `conversation_id`, `sequence`, `type`, `payload`, `owner`, `message_id`, `content_hash`, `first`, `created_at` FROM `events`;
-- drop "events" table after copying rows
DROP TABLE `events`;
-- rename temporary table "new_events" to "events"
ALTER TABLE `new_events` RENAME TO `events`;
-- create index "event_company_id_conversation_id_sequence" to table: "events"
CREATE UNIQUE INDEX `event_company_id_conversation_id_sequence` ON `events` (`company_id`, `conversation_id`, `sequence`);
-- create index "event_company_id_owner_message_id" to table: "events"
CREATE UNIQUE INDEX `event_company_id_owner_message_id` ON `events` (`company_id`, `owner`, `message_id`);
-- create index "event_created_at" to table: "events"
CREATE INDEX `event_created_at` ON `events` (`created_at`);
-- enable back the enforcement of foreign-keys constraints
PRAGMA foreign_keys = on;

-- +goose Down
-- reverse: create index "event_created_at" to table: "events"
DROP INDEX `event_created_at`;
-- reverse: create index "event_company_id_owner_message_id" to table: "events"
DROP INDEX `event_company_id_owner_message_id`;
-- reverse: create index "event_company_id_conversation_id_sequence" to table: "events"
DROP INDEX `event_company_id_conversation_id_sequence`;
-- reverse: create "new_events" table
DROP TABLE `new_events`;
