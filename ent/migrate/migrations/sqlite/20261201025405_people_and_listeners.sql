-- +goose Up
-- disable the enforcement of foreign-keys constraints
PRAGMA foreign_keys = off;
-- create "new_conversations" table
CREATE TABLE `new_conversations` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `user_id` text NOT NULL, `account` text NOT NULL DEFAULT (''), `session_id` text NOT NULL, `status` text NOT NULL DEFAULT ('idle'), `responder` text NOT NULL DEFAULT ('agent'), `context` json NULL, `cursor_key` blob NOT NULL, `last_sequence` integer NOT NULL DEFAULT (0), `oldest_sequence` integer NOT NULL DEFAULT (1), `answer_due_at` datetime NULL, `last_event_at` datetime NOT NULL, `closed_by` text NOT NULL DEFAULT (''), `parent_id` text NOT NULL DEFAULT (''), `child_id` text NOT NULL DEFAULT (''), `person` text NOT NULL DEFAULT (''), `assignee` text NOT NULL DEFAULT (''), `waiting_since` datetime NULL, `handoff_reason` text NOT NULL DEFAULT (''), `had_handoff` bool NOT NULL DEFAULT (false), PRIMARY KEY (`id`));
-- copy rows from old table "conversations" to new temporary table "new_conversations"
INSERT INTO `new_conversations` (`id`, `company_id`, `created_at`, `updated_at`, `version`, `client_id`, `agent_name`, `user_id`, `account`, `session_id`, `status`, `responder`, `context`, `cursor_key`, `last_sequence`, `oldest_sequence`, `answer_due_at`, `last_event_at`, `closed_by`) SELECT `id`, `company_id`, `created_at`, `updated_at`, `version`, `client_id`, `agent_name`, `user_id`, `account`, `session_id`, `status`, `responder`, `context`, `cursor_key`, `last_sequence`, `oldest_sequence`, `answer_due_at`, `last_event_at`, `closed_by` FROM `conversations`;
-- drop "conversations" table after copying rows
DROP TABLE `conversations`;
-- rename temporary table "new_conversations" to "conversations"
ALTER TABLE `new_conversations` RENAME TO `conversations`;
-- create index "conversation_company_id_last_event_at_id" to table: "conversations"
CREATE INDEX `conversation_company_id_last_event_at_id` ON `conversations` (`company_id`, `last_event_at`, `id`);
-- create index "conversation_answer_due_at" to table: "conversations"
CREATE INDEX `conversation_answer_due_at` ON `conversations` (`answer_due_at`) WHERE answer_due_at IS NOT NULL;
-- create index "conversation_status_last_event_at" to table: "conversations"
CREATE INDEX `conversation_status_last_event_at` ON `conversations` (`status`, `last_event_at`);
-- create index "conversation_company_id_waiting_since_id" to table: "conversations"
CREATE INDEX `conversation_company_id_waiting_since_id` ON `conversations` (`company_id`, `waiting_since`, `id`) WHERE waiting_since IS NOT NULL;
-- create index "conversation_company_id_person" to table: "conversations"
CREATE INDEX `conversation_company_id_person` ON `conversations` (`company_id`, `person`) WHERE person <> '';
-- create "new_deliveries" table
CREATE TABLE `new_deliveries` (`id` text NOT NULL, `company_id` text NOT NULL, `conversation_id` text NOT NULL, `sequence` integer NOT NULL, `round` integer NOT NULL DEFAULT (0), `state` text NOT NULL DEFAULT ('pending'), `attempts` integer NOT NULL DEFAULT (0), `next_attempt_at` datetime NOT NULL, `lease_owner` text NOT NULL DEFAULT (''), `lease_until` datetime NULL, `expects_reply` bool NOT NULL, `reply_by` datetime NULL, `session` json NOT NULL, `context` json NULL, `traceparent` text NOT NULL DEFAULT (''), `last_status` integer NOT NULL DEFAULT (0), `last_reason` text NOT NULL DEFAULT (''), `agent_outcome` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `done_at` datetime NULL, PRIMARY KEY (`id`));
-- copy rows from old table "deliveries" to new temporary table "new_deliveries"
INSERT INTO `new_deliveries` (`id`, `company_id`, `conversation_id`, `sequence`, `state`, `attempts`, `next_attempt_at`, `lease_owner`, `lease_until`, `expects_reply`, `reply_by`, `session`, `context`, `traceparent`, `last_status`, `last_reason`, `agent_outcome`, `created_at`, `done_at`) SELECT `id`, `company_id`, `conversation_id`, `sequence`, `state`, `attempts`, `next_attempt_at`, `lease_owner`, `lease_until`, `expects_reply`, `reply_by`, `session`, `context`, `traceparent`, `last_status`, `last_reason`, `agent_outcome`, `created_at`, `done_at` FROM `deliveries`;
-- drop "deliveries" table after copying rows
DROP TABLE `deliveries`;
-- rename temporary table "new_deliveries" to "deliveries"
ALTER TABLE `new_deliveries` RENAME TO `deliveries`;
-- create index "delivery_company_id_conversation_id_sequence_round" to table: "deliveries"
CREATE UNIQUE INDEX `delivery_company_id_conversation_id_sequence_round` ON `deliveries` (`company_id`, `conversation_id`, `sequence`, `round`);
-- create index "delivery_next_attempt_at" to table: "deliveries"
CREATE INDEX `delivery_next_attempt_at` ON `deliveries` (`next_attempt_at`) WHERE state = 'pending';
-- create index "delivery_company_id_created_at_id" to table: "deliveries"
CREATE INDEX `delivery_company_id_created_at_id` ON `deliveries` (`company_id`, `created_at`, `id`);
-- create index "delivery_live" to table: "deliveries"
CREATE INDEX `delivery_live` ON `deliveries` (`company_id`, `conversation_id`, `sequence`) WHERE (state = 'pending' OR (expects_reply AND agent_outcome = ''));
-- create "new_webhook_secrets" table
CREATE TABLE `new_webhook_secrets` (`id` text NOT NULL, `company_id` text NOT NULL, `kind` text NOT NULL, `endpoint_id` text NOT NULL DEFAULT (''), `sealed` blob NOT NULL, `public_key` text NOT NULL DEFAULT (''), `prefix` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `expires_at` datetime NULL, PRIMARY KEY (`id`));
-- copy rows from old table "webhook_secrets" to new temporary table "new_webhook_secrets"
INSERT INTO `new_webhook_secrets` (`id`, `company_id`, `kind`, `sealed`, `public_key`, `prefix`, `created_at`, `expires_at`) SELECT `id`, `company_id`, `kind`, `sealed`, `public_key`, `prefix`, `created_at`, `expires_at` FROM `webhook_secrets`;
-- drop "webhook_secrets" table after copying rows
DROP TABLE `webhook_secrets`;
-- rename temporary table "new_webhook_secrets" to "webhook_secrets"
ALTER TABLE `new_webhook_secrets` RENAME TO `webhook_secrets`;
-- create index "webhooksecret_company_id_created_at" to table: "webhook_secrets"
CREATE INDEX `webhooksecret_company_id_created_at` ON `webhook_secrets` (`company_id`, `created_at`);
-- create "new_sessions" table
CREATE TABLE `new_sessions` (`id` text NOT NULL, `company_id` text NOT NULL, `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `user_id` text NOT NULL, `account` text NOT NULL DEFAULT (''), `grant_id` text NOT NULL DEFAULT (''), `extensions` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `last_used_at` datetime NOT NULL, `ended_at` datetime NULL, PRIMARY KEY (`id`));
-- copy rows from old table "sessions" to new temporary table "new_sessions"
INSERT INTO `new_sessions` (`id`, `company_id`, `client_id`, `agent_name`, `user_id`, `account`, `grant_id`, `created_at`, `last_used_at`, `ended_at`) SELECT `id`, `company_id`, `client_id`, `agent_name`, `user_id`, `account`, `grant_id`, `created_at`, `last_used_at`, `ended_at` FROM `sessions`;
-- drop "sessions" table after copying rows
DROP TABLE `sessions`;
-- rename temporary table "new_sessions" to "sessions"
ALTER TABLE `new_sessions` RENAME TO `sessions`;
-- create index "session_company_id_created_at_id" to table: "sessions"
CREATE INDEX `session_company_id_created_at_id` ON `sessions` (`company_id`, `created_at`, `id`);
-- create index "session_last_used_at" to table: "sessions"
CREATE INDEX `session_last_used_at` ON `sessions` (`last_used_at`);
-- create index "session_company_id_grant_id" to table: "sessions"
CREATE INDEX `session_company_id_grant_id` ON `sessions` (`company_id`, `grant_id`);
-- create index "session_company_id_client_id" to table: "sessions"
CREATE INDEX `session_company_id_client_id` ON `sessions` (`company_id`, `client_id`);
-- create "attempts" table
CREATE TABLE `attempts` (`id` text NOT NULL, `company_id` text NOT NULL, `delivery_id` text NOT NULL, `endpoint_id` text NOT NULL, `status` integer NOT NULL DEFAULT (0), `outcome` text NOT NULL, `reason` text NOT NULL DEFAULT (''), `duration_us` integer NOT NULL, `evidence` json NULL, `created_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "attempt_company_id_delivery_id_created_at" to table: "attempts"
CREATE INDEX `attempt_company_id_delivery_id_created_at` ON `attempts` (`company_id`, `delivery_id`, `created_at`);
-- create index "attempt_company_id_endpoint_id_created_at" to table: "attempts"
CREATE INDEX `attempt_company_id_endpoint_id_created_at` ON `attempts` (`company_id`, `endpoint_id`, `created_at`);
-- create index "attempt_created_at" to table: "attempts"
CREATE INDEX `attempt_created_at` ON `attempts` (`created_at`);
-- create "company_events" table
CREATE TABLE `company_events` (`id` text NOT NULL, `company_id` text NOT NULL, `type` text NOT NULL, `subject` text NOT NULL DEFAULT (''), `body` blob NOT NULL, `created_at` datetime NOT NULL, `routed_at` datetime NULL, PRIMARY KEY (`id`));
-- create index "company_event_unrouted" to table: "company_events"
CREATE INDEX `company_event_unrouted` ON `company_events` (`created_at`) WHERE routed_at IS NULL;
-- create index "companyevent_company_id_created_at_id" to table: "company_events"
CREATE INDEX `companyevent_company_id_created_at_id` ON `company_events` (`company_id`, `created_at`, `id`);
-- create "endpoints" table
CREATE TABLE `endpoints` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `role` text NOT NULL, `kind` text NOT NULL DEFAULT ('webhook'), `display_name` text NOT NULL DEFAULT (''), `url` text NOT NULL DEFAULT (''), `enabled` bool NOT NULL DEFAULT (true), `disable_reason` text NOT NULL DEFAULT (''), `disabled_at` datetime NULL, `ack_timeout_ms` integer NOT NULL DEFAULT (0), `attempt_timeout_ms` integer NOT NULL DEFAULT (0), `deliver_late` bool NOT NULL DEFAULT (true), `settings` json NULL, `sealed_credentials` blob NULL, `failures` integer NOT NULL DEFAULT (0), `failing_since` datetime NULL, `last_success_at` datetime NULL, PRIMARY KEY (`id`));
-- create index "endpoint_backend" to table: "endpoints"
CREATE UNIQUE INDEX `endpoint_backend` ON `endpoints` (`company_id`) WHERE role = 'answers';
-- create index "endpoint_company_id_created_at_id" to table: "endpoints"
CREATE INDEX `endpoint_company_id_created_at_id` ON `endpoints` (`company_id`, `created_at`, `id`);
-- create "endpoint_deliveries" table
CREATE TABLE `endpoint_deliveries` (`id` text NOT NULL, `company_id` text NOT NULL, `endpoint_id` text NOT NULL, `event_id` text NOT NULL, `event_type` text NOT NULL, `origin` text NOT NULL DEFAULT ('event'), `state` text NOT NULL DEFAULT ('pending'), `attempts` integer NOT NULL DEFAULT (0), `next_attempt_at` datetime NOT NULL, `lease_owner` text NOT NULL DEFAULT (''), `lease_until` datetime NULL, `last_status` integer NOT NULL DEFAULT (0), `last_reason` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `done_at` datetime NULL, PRIMARY KEY (`id`));
-- create index "endpoint_delivery_due" to table: "endpoint_deliveries"
CREATE INDEX `endpoint_delivery_due` ON `endpoint_deliveries` (`next_attempt_at`) WHERE state = 'pending';
-- create index "endpoint_delivery_queue" to table: "endpoint_deliveries"
CREATE INDEX `endpoint_delivery_queue` ON `endpoint_deliveries` (`company_id`, `endpoint_id`, `next_attempt_at`) WHERE state = 'pending';
-- create index "endpointdelivery_company_id_created_at_id" to table: "endpoint_deliveries"
CREATE INDEX `endpointdelivery_company_id_created_at_id` ON `endpoint_deliveries` (`company_id`, `created_at`, `id`);
-- create index "endpointdelivery_company_id_endpoint_id_created_at_id" to table: "endpoint_deliveries"
CREATE INDEX `endpointdelivery_company_id_endpoint_id_created_at_id` ON `endpoint_deliveries` (`company_id`, `endpoint_id`, `created_at`, `id`);
-- create "inbox_settings" table
CREATE TABLE `inbox_settings` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `settings` json NOT NULL, PRIMARY KEY (`id`));
-- create index "inboxsettings_company_id" to table: "inbox_settings"
CREATE UNIQUE INDEX `inboxsettings_company_id` ON `inbox_settings` (`company_id`);
-- create "notes" table
CREATE TABLE `notes` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `conversation_id` text NOT NULL, `author` text NOT NULL, `text` text NOT NULL, PRIMARY KEY (`id`));
-- create index "note_company_id_conversation_id_created_at" to table: "notes"
CREATE INDEX `note_company_id_conversation_id_created_at` ON `notes` (`company_id`, `conversation_id`, `created_at`);
-- create "presences" table
CREATE TABLE `presences` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `person` text NOT NULL, `display_name` text NOT NULL DEFAULT (''), `until` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "presence_company_id_person" to table: "presences"
CREATE UNIQUE INDEX `presence_company_id_person` ON `presences` (`company_id`, `person`);
-- the one backend of each Company becomes its endpoint that answers
INSERT INTO `endpoints` (`id`, `company_id`, `created_at`, `updated_at`, `version`, `url`, `enabled`, `disable_reason`, `attempt_timeout_ms`, `deliver_late`, `role`) SELECT `id`, `company_id`, `created_at`, `updated_at`, `version`, `url`, `enabled`, `disable_reason`, `attempt_timeout_ms`, `deliver_late`, 'answers' FROM `backends`;
DROP TABLE `backends`;
-- enable back the enforcement of foreign-keys constraints
PRAGMA foreign_keys = on;

-- +goose Down
CREATE TABLE `backends` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `url` text NOT NULL DEFAULT (''), `enabled` bool NOT NULL DEFAULT (true), `disable_reason` text NOT NULL DEFAULT (''), `attempt_timeout_ms` integer NOT NULL DEFAULT (0), `deliver_late` bool NOT NULL DEFAULT (true), PRIMARY KEY (`id`));
CREATE UNIQUE INDEX `backend_company_id` ON `backends` (`company_id`);
INSERT INTO `backends` (`id`, `company_id`, `created_at`, `updated_at`, `version`, `url`, `enabled`, `disable_reason`, `attempt_timeout_ms`, `deliver_late`) SELECT `id`, `company_id`, `created_at`, `updated_at`, `version`, `url`, `enabled`, `disable_reason`, `attempt_timeout_ms`, `deliver_late` FROM `endpoints` WHERE role = 'answers';
-- reverse: create index "presence_company_id_person" to table: "presences"
DROP INDEX `presence_company_id_person`;
-- reverse: create "presences" table
DROP TABLE `presences`;
-- reverse: create index "note_company_id_conversation_id_created_at" to table: "notes"
DROP INDEX `note_company_id_conversation_id_created_at`;
-- reverse: create "notes" table
DROP TABLE `notes`;
-- reverse: create index "inboxsettings_company_id" to table: "inbox_settings"
DROP INDEX `inboxsettings_company_id`;
-- reverse: create "inbox_settings" table
DROP TABLE `inbox_settings`;
-- reverse: create index "endpointdelivery_company_id_endpoint_id_created_at_id" to table: "endpoint_deliveries"
DROP INDEX `endpointdelivery_company_id_endpoint_id_created_at_id`;
-- reverse: create index "endpointdelivery_company_id_created_at_id" to table: "endpoint_deliveries"
DROP INDEX `endpointdelivery_company_id_created_at_id`;
-- reverse: create index "endpoint_delivery_queue" to table: "endpoint_deliveries"
DROP INDEX `endpoint_delivery_queue`;
-- reverse: create index "endpoint_delivery_due" to table: "endpoint_deliveries"
DROP INDEX `endpoint_delivery_due`;
-- reverse: create "endpoint_deliveries" table
DROP TABLE `endpoint_deliveries`;
-- reverse: create index "endpoint_company_id_created_at_id" to table: "endpoints"
DROP INDEX `endpoint_company_id_created_at_id`;
-- reverse: create index "endpoint_backend" to table: "endpoints"
DROP INDEX `endpoint_backend`;
-- reverse: create "endpoints" table
DROP TABLE `endpoints`;
-- reverse: create index "companyevent_company_id_created_at_id" to table: "company_events"
DROP INDEX `companyevent_company_id_created_at_id`;
-- reverse: create index "company_event_unrouted" to table: "company_events"
DROP INDEX `company_event_unrouted`;
-- reverse: create "company_events" table
DROP TABLE `company_events`;
-- reverse: create index "attempt_created_at" to table: "attempts"
DROP INDEX `attempt_created_at`;
-- reverse: create index "attempt_company_id_endpoint_id_created_at" to table: "attempts"
DROP INDEX `attempt_company_id_endpoint_id_created_at`;
-- reverse: create index "attempt_company_id_delivery_id_created_at" to table: "attempts"
DROP INDEX `attempt_company_id_delivery_id_created_at`;
-- reverse: create "attempts" table
DROP TABLE `attempts`;
-- reverse: create index "session_company_id_client_id" to table: "sessions"
DROP INDEX `session_company_id_client_id`;
-- reverse: create index "session_company_id_grant_id" to table: "sessions"
DROP INDEX `session_company_id_grant_id`;
-- reverse: create index "session_last_used_at" to table: "sessions"
DROP INDEX `session_last_used_at`;
-- reverse: create index "session_company_id_created_at_id" to table: "sessions"
DROP INDEX `session_company_id_created_at_id`;
-- reverse: create "new_sessions" table
DROP TABLE `new_sessions`;
-- reverse: create index "webhooksecret_company_id_created_at" to table: "webhook_secrets"
DROP INDEX `webhooksecret_company_id_created_at`;
-- reverse: create "new_webhook_secrets" table
DROP TABLE `new_webhook_secrets`;
-- reverse: create index "delivery_live" to table: "deliveries"
DROP INDEX `delivery_live`;
-- reverse: create index "delivery_company_id_created_at_id" to table: "deliveries"
DROP INDEX `delivery_company_id_created_at_id`;
-- reverse: create index "delivery_next_attempt_at" to table: "deliveries"
DROP INDEX `delivery_next_attempt_at`;
-- reverse: create index "delivery_company_id_conversation_id_sequence_round" to table: "deliveries"
DROP INDEX `delivery_company_id_conversation_id_sequence_round`;
-- reverse: create "new_deliveries" table
DROP TABLE `new_deliveries`;
-- reverse: create index "conversation_company_id_person" to table: "conversations"
DROP INDEX `conversation_company_id_person`;
-- reverse: create index "conversation_company_id_waiting_since_id" to table: "conversations"
DROP INDEX `conversation_company_id_waiting_since_id`;
-- reverse: create index "conversation_status_last_event_at" to table: "conversations"
DROP INDEX `conversation_status_last_event_at`;
-- reverse: create index "conversation_answer_due_at" to table: "conversations"
DROP INDEX `conversation_answer_due_at`;
-- reverse: create index "conversation_company_id_last_event_at_id" to table: "conversations"
DROP INDEX `conversation_company_id_last_event_at_id`;
-- reverse: create "new_conversations" table
DROP TABLE `new_conversations`;
