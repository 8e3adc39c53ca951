-- +goose Up
-- create "admissions" table
CREATE TABLE `admissions` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `mode` text NOT NULL DEFAULT ('open'), `require_dpop_nonce` bool NOT NULL DEFAULT (false), PRIMARY KEY (`id`));
-- create index "admission_company_id" to table: "admissions"
CREATE UNIQUE INDEX `admission_company_id` ON `admissions` (`company_id`);
-- create "admission_rules" table
CREATE TABLE `admission_rules` (`id` text NOT NULL, `company_id` text NOT NULL, `client_id` text NOT NULL, `effect` text NOT NULL, `reason` text NOT NULL DEFAULT (''), `expires_at` datetime NULL, `created_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "admissionrule_company_id_client_id" to table: "admission_rules"
CREATE UNIQUE INDEX `admissionrule_company_id_client_id` ON `admission_rules` (`company_id`, `client_id`);
-- create "answered_requests" table
CREATE TABLE `answered_requests` (`id` text NOT NULL, `method` text NOT NULL, `request_hash` blob NOT NULL, `response` blob NULL, `created_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "answeredrequest_created_at" to table: "answered_requests"
CREATE INDEX `answeredrequest_created_at` ON `answered_requests` (`created_at`);
-- create "api_keys" table
CREATE TABLE `api_keys` (`id` text NOT NULL, `company_id` text NOT NULL, `scopes` json NOT NULL, `display_name` text NOT NULL DEFAULT (''), `hash` text NOT NULL, `prefix` text NOT NULL DEFAULT (''), `expires_at` datetime NULL, `revoked_at` datetime NULL, `last_used_at` datetime NULL, `created_at` datetime NOT NULL, `creator` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- create index "apikey_company_id_created_at_id" to table: "api_keys"
CREATE INDEX `apikey_company_id_created_at_id` ON `api_keys` (`company_id`, `created_at`, `id`);
-- create index "apikey_hash" to table: "api_keys"
CREATE UNIQUE INDEX `apikey_hash` ON `api_keys` (`hash`);
-- create "backends" table
CREATE TABLE `backends` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `url` text NOT NULL DEFAULT (''), `enabled` bool NOT NULL DEFAULT (true), `disable_reason` text NOT NULL DEFAULT (''), `attempt_timeout_ms` integer NOT NULL DEFAULT (0), `deliver_late` bool NOT NULL DEFAULT (true), PRIMARY KEY (`id`));
-- create index "backend_company_id" to table: "backends"
CREATE UNIQUE INDEX `backend_company_id` ON `backends` (`company_id`);
-- create "companies" table
CREATE TABLE `companies` (`id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `organization` text NOT NULL DEFAULT (''), `slug` text NOT NULL, `display_name` text NOT NULL DEFAULT (''), `kind` text NOT NULL DEFAULT ('live'), `state` text NOT NULL DEFAULT ('setting_up'), `issuer` text NOT NULL, `issuer_host` text NOT NULL, `issuer_path` text NOT NULL DEFAULT (''), `published_at` datetime NULL, `settings` json NULL, `settings_updated_at` datetime NOT NULL, `limits` json NULL, `limits_updated_at` datetime NOT NULL, `creator` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- create index "companies_slug_key" to table: "companies"
CREATE UNIQUE INDEX `companies_slug_key` ON `companies` (`slug`);
-- create index "companies_issuer_key" to table: "companies"
CREATE UNIQUE INDEX `companies_issuer_key` ON `companies` (`issuer`);
-- create index "company_issuer_host_issuer_path" to table: "companies"
CREATE UNIQUE INDEX `company_issuer_host_issuer_path` ON `companies` (`issuer_host`, `issuer_path`);
-- create index "company_created_at_id" to table: "companies"
CREATE INDEX `company_created_at_id` ON `companies` (`created_at`, `id`);
-- create "conversations" table
CREATE TABLE `conversations` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `user_id` text NOT NULL, `account` text NOT NULL DEFAULT (''), `session_id` text NOT NULL, `status` text NOT NULL DEFAULT ('idle'), `responder` text NOT NULL DEFAULT ('agent'), `context` json NULL, `cursor_key` blob NOT NULL, `last_sequence` integer NOT NULL DEFAULT (0), `oldest_sequence` integer NOT NULL DEFAULT (1), `answer_due_at` datetime NULL, `last_event_at` datetime NOT NULL, `closed_by` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- create index "conversation_company_id_last_event_at_id" to table: "conversations"
CREATE INDEX `conversation_company_id_last_event_at_id` ON `conversations` (`company_id`, `last_event_at`, `id`);
-- create index "conversation_answer_due_at" to table: "conversations"
CREATE INDEX `conversation_answer_due_at` ON `conversations` (`answer_due_at`) WHERE answer_due_at IS NOT NULL;
-- create index "conversation_status_last_event_at" to table: "conversations"
CREATE INDEX `conversation_status_last_event_at` ON `conversations` (`status`, `last_event_at`);
-- create "deliveries" table
CREATE TABLE `deliveries` (`id` text NOT NULL, `company_id` text NOT NULL, `conversation_id` text NOT NULL, `sequence` integer NOT NULL, `state` text NOT NULL DEFAULT ('pending'), `attempts` integer NOT NULL DEFAULT (0), `next_attempt_at` datetime NOT NULL, `lease_owner` text NOT NULL DEFAULT (''), `lease_until` datetime NULL, `expects_reply` bool NOT NULL, `reply_by` datetime NULL, `session` json NOT NULL, `context` json NULL, `traceparent` text NOT NULL DEFAULT (''), `last_status` integer NOT NULL DEFAULT (0), `last_reason` text NOT NULL DEFAULT (''), `agent_outcome` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `done_at` datetime NULL, PRIMARY KEY (`id`));
-- create index "delivery_company_id_conversation_id_sequence" to table: "deliveries"
CREATE UNIQUE INDEX `delivery_company_id_conversation_id_sequence` ON `deliveries` (`company_id`, `conversation_id`, `sequence`);
-- create index "delivery_next_attempt_at" to table: "deliveries"
CREATE INDEX `delivery_next_attempt_at` ON `deliveries` (`next_attempt_at`) WHERE state = 'pending';
-- create "domains" table
CREATE TABLE `domains` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `domain` text NOT NULL, `state` text NOT NULL DEFAULT ('pending'), `challenge` text NOT NULL, `proof_method` text NOT NULL DEFAULT (''), `observations` json NULL, `verified_at` datetime NULL, `checked_at` datetime NULL, `next_check_at` datetime NULL, PRIMARY KEY (`id`));
-- create index "domain_company_id_domain" to table: "domains"
CREATE UNIQUE INDEX `domain_company_id_domain` ON `domains` (`company_id`, `domain`);
-- create index "domain_domain" to table: "domains"
CREATE UNIQUE INDEX `domain_domain` ON `domains` (`domain`) WHERE state = 'verified';
-- create index "domain_next_check_at" to table: "domains"
CREATE INDEX `domain_next_check_at` ON `domains` (`next_check_at`);
-- create "events" table
CREATE TABLE `events` (`id` integer NOT NULL PRIMARY KEY AUTOINCREMENT, `company_id` text NOT NULL, `conversation_id` text NOT NULL, `sequence` integer NOT NULL, `type` text NOT NULL, `payload` blob NULL, `owner` text NULL, `message_id` text NULL, `content_hash` blob NULL, `first` bool NOT NULL DEFAULT (false), `created_at` datetime NOT NULL);
-- create index "event_company_id_conversation_id_sequence" to table: "events"
CREATE UNIQUE INDEX `event_company_id_conversation_id_sequence` ON `events` (`company_id`, `conversation_id`, `sequence`);
-- create index "event_company_id_owner_message_id" to table: "events"
CREATE UNIQUE INDEX `event_company_id_owner_message_id` ON `events` (`company_id`, `owner`, `message_id`);
-- create index "event_created_at" to table: "events"
CREATE INDEX `event_created_at` ON `events` (`created_at`);
-- create "operator_keys" table
CREATE TABLE `operator_keys` (`id` text NOT NULL, `display_name` text NOT NULL DEFAULT (''), `hash` text NOT NULL, `prefix` text NOT NULL DEFAULT (''), `expires_at` datetime NULL, `revoked_at` datetime NULL, `last_used_at` datetime NULL, `created_at` datetime NOT NULL, `creator` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- create index "operatorkey_hash" to table: "operator_keys"
CREATE UNIQUE INDEX `operatorkey_hash` ON `operator_keys` (`hash`);
-- create "sessions" table
CREATE TABLE `sessions` (`id` text NOT NULL, `company_id` text NOT NULL, `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `user_id` text NOT NULL, `account` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `last_used_at` datetime NOT NULL, `ended_at` datetime NULL, PRIMARY KEY (`id`));
-- create index "session_company_id_created_at_id" to table: "sessions"
CREATE INDEX `session_company_id_created_at_id` ON `sessions` (`company_id`, `created_at`, `id`);
-- create index "session_last_used_at" to table: "sessions"
CREATE INDEX `session_last_used_at` ON `sessions` (`last_used_at`);
-- create "session_tokens" table
CREATE TABLE `session_tokens` (`id` text NOT NULL, `company_id` text NOT NULL, `session_id` text NOT NULL, `jkt` text NOT NULL DEFAULT (''), `resource` text NOT NULL DEFAULT (''), `scope` text NOT NULL DEFAULT (''), `signed_in` bool NOT NULL DEFAULT (false), `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, `revoked_at` datetime NULL, PRIMARY KEY (`id`));
-- create index "sessiontoken_company_id_session_id" to table: "session_tokens"
CREATE INDEX `sessiontoken_company_id_session_id` ON `session_tokens` (`company_id`, `session_id`);
-- create index "sessiontoken_expires_at" to table: "session_tokens"
CREATE INDEX `sessiontoken_expires_at` ON `session_tokens` (`expires_at`);
-- create "webhook_secrets" table
CREATE TABLE `webhook_secrets` (`id` text NOT NULL, `company_id` text NOT NULL, `kind` text NOT NULL, `sealed` blob NOT NULL, `public_key` text NOT NULL DEFAULT (''), `prefix` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `expires_at` datetime NULL, PRIMARY KEY (`id`));
-- create index "webhooksecret_company_id_created_at" to table: "webhook_secrets"
CREATE INDEX `webhooksecret_company_id_created_at` ON `webhook_secrets` (`company_id`, `created_at`);

-- +goose Down
-- reverse: create index "webhooksecret_company_id_created_at" to table: "webhook_secrets"
DROP INDEX `webhooksecret_company_id_created_at`;
-- reverse: create "webhook_secrets" table
DROP TABLE `webhook_secrets`;
-- reverse: create index "sessiontoken_expires_at" to table: "session_tokens"
DROP INDEX `sessiontoken_expires_at`;
-- reverse: create index "sessiontoken_company_id_session_id" to table: "session_tokens"
DROP INDEX `sessiontoken_company_id_session_id`;
-- reverse: create "session_tokens" table
DROP TABLE `session_tokens`;
-- reverse: create index "session_last_used_at" to table: "sessions"
DROP INDEX `session_last_used_at`;
-- reverse: create index "session_company_id_created_at_id" to table: "sessions"
DROP INDEX `session_company_id_created_at_id`;
-- reverse: create "sessions" table
DROP TABLE `sessions`;
-- reverse: create index "operatorkey_hash" to table: "operator_keys"
DROP INDEX `operatorkey_hash`;
-- reverse: create "operator_keys" table
DROP TABLE `operator_keys`;
-- reverse: create index "event_created_at" to table: "events"
DROP INDEX `event_created_at`;
-- reverse: create index "event_company_id_owner_message_id" to table: "events"
DROP INDEX `event_company_id_owner_message_id`;
-- reverse: create index "event_company_id_conversation_id_sequence" to table: "events"
DROP INDEX `event_company_id_conversation_id_sequence`;
-- reverse: create "events" table
DROP TABLE `events`;
-- reverse: create index "domain_next_check_at" to table: "domains"
DROP INDEX `domain_next_check_at`;
-- reverse: create index "domain_domain" to table: "domains"
DROP INDEX `domain_domain`;
-- reverse: create index "domain_company_id_domain" to table: "domains"
DROP INDEX `domain_company_id_domain`;
-- reverse: create "domains" table
DROP TABLE `domains`;
-- reverse: create index "delivery_next_attempt_at" to table: "deliveries"
DROP INDEX `delivery_next_attempt_at`;
-- reverse: create index "delivery_company_id_conversation_id_sequence" to table: "deliveries"
DROP INDEX `delivery_company_id_conversation_id_sequence`;
-- reverse: create "deliveries" table
DROP TABLE `deliveries`;
-- reverse: create index "conversation_status_last_event_at" to table: "conversations"
DROP INDEX `conversation_status_last_event_at`;
-- reverse: create index "conversation_answer_due_at" to table: "conversations"
DROP INDEX `conversation_answer_due_at`;
-- reverse: create index "conversation_company_id_last_event_at_id" to table: "conversations"
DROP INDEX `conversation_company_id_last_event_at_id`;
-- reverse: create "conversations" table
DROP TABLE `conversations`;
-- reverse: create index "company_created_at_id" to table: "companies"
DROP INDEX `company_created_at_id`;
-- reverse: create index "company_issuer_host_issuer_path" to table: "companies"
DROP INDEX `company_issuer_host_issuer_path`;
-- reverse: create index "companies_issuer_key" to table: "companies"
DROP INDEX `companies_issuer_key`;
-- reverse: create index "companies_slug_key" to table: "companies"
DROP INDEX `companies_slug_key`;
-- reverse: create "companies" table
DROP TABLE `companies`;
-- reverse: create index "backend_company_id" to table: "backends"
DROP INDEX `backend_company_id`;
-- reverse: create "backends" table
DROP TABLE `backends`;
-- reverse: create index "apikey_hash" to table: "api_keys"
DROP INDEX `apikey_hash`;
-- reverse: create index "apikey_company_id_created_at_id" to table: "api_keys"
DROP INDEX `apikey_company_id_created_at_id`;
-- reverse: create "api_keys" table
DROP TABLE `api_keys`;
-- reverse: create index "answeredrequest_created_at" to table: "answered_requests"
DROP INDEX `answeredrequest_created_at`;
-- reverse: create "answered_requests" table
DROP TABLE `answered_requests`;
-- reverse: create index "admissionrule_company_id_client_id" to table: "admission_rules"
DROP INDEX `admissionrule_company_id_client_id`;
-- reverse: create "admission_rules" table
DROP TABLE `admission_rules`;
-- reverse: create index "admission_company_id" to table: "admissions"
DROP INDEX `admission_company_id`;
-- reverse: create "admissions" table
DROP TABLE `admissions`;
