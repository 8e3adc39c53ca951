-- +goose Up
-- disable the enforcement of foreign-keys constraints
PRAGMA foreign_keys = off;
-- create "new_sessions" table
CREATE TABLE `new_sessions` (`id` text NOT NULL, `company_id` text NOT NULL, `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `user_id` text NOT NULL, `account` text NOT NULL DEFAULT (''), `grant_id` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `last_used_at` datetime NOT NULL, `ended_at` datetime NULL, PRIMARY KEY (`id`));
-- copy rows from old table "sessions" to new temporary table "new_sessions"
INSERT INTO `new_sessions` (`id`, `company_id`, `client_id`, `agent_name`, `user_id`, `account`, `created_at`, `last_used_at`, `ended_at`) SELECT `id`, `company_id`, `client_id`, `agent_name`, `user_id`, `account`, `created_at`, `last_used_at`, `ended_at` FROM `sessions`;
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
-- create "new_session_tokens" table
CREATE TABLE `new_session_tokens` (`id` text NOT NULL, `company_id` text NOT NULL, `session_id` text NOT NULL, `jkt` text NOT NULL DEFAULT (''), `resource` text NOT NULL DEFAULT (''), `scope` text NOT NULL DEFAULT (''), `signed_in` bool NOT NULL DEFAULT (false), `grant_id` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, `revoked_at` datetime NULL, PRIMARY KEY (`id`));
-- copy rows from old table "session_tokens" to new temporary table "new_session_tokens"
INSERT INTO `new_session_tokens` (`id`, `company_id`, `session_id`, `jkt`, `resource`, `scope`, `signed_in`, `created_at`, `expires_at`, `revoked_at`) SELECT `id`, `company_id`, `session_id`, `jkt`, `resource`, `scope`, `signed_in`, `created_at`, `expires_at`, `revoked_at` FROM `session_tokens`;
-- drop "session_tokens" table after copying rows
DROP TABLE `session_tokens`;
-- rename temporary table "new_session_tokens" to "session_tokens"
ALTER TABLE `new_session_tokens` RENAME TO `session_tokens`;
-- create index "sessiontoken_company_id_session_id" to table: "session_tokens"
CREATE INDEX `sessiontoken_company_id_session_id` ON `session_tokens` (`company_id`, `session_id`);
-- create index "sessiontoken_expires_at" to table: "session_tokens"
CREATE INDEX `sessiontoken_expires_at` ON `session_tokens` (`expires_at`);
-- create index "sessiontoken_company_id_grant_id" to table: "session_tokens"
CREATE INDEX `sessiontoken_company_id_grant_id` ON `session_tokens` (`company_id`, `grant_id`);
-- create "account_tokens" table
CREATE TABLE `account_tokens` (`id` text NOT NULL, `company_id` text NOT NULL, `grant_id` text NOT NULL, `created_at` datetime NOT NULL, `replaced_at` datetime NULL, PRIMARY KEY (`id`));
-- create index "accounttoken_company_id_grant_id" to table: "account_tokens"
CREATE INDEX `accounttoken_company_id_grant_id` ON `account_tokens` (`company_id`, `grant_id`);
-- create "authorization_codes" table
CREATE TABLE `authorization_codes` (`id` text NOT NULL, `company_id` text NOT NULL, `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `redirect_uri` text NOT NULL, `code_challenge` text NOT NULL, `scope` text NOT NULL, `account` text NOT NULL, `account_label` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, `consumed_at` datetime NULL, `grant_id` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- create index "authorizationcode_expires_at" to table: "authorization_codes"
CREATE INDEX `authorizationcode_expires_at` ON `authorization_codes` (`expires_at`);
-- create "device_authorizations" table
CREATE TABLE `device_authorizations` (`id` text NOT NULL, `company_id` text NOT NULL, `user_code_hash` text NOT NULL, `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `scope` text NOT NULL, `state` text NOT NULL DEFAULT ('pending'), `approved_scope` text NOT NULL DEFAULT (''), `account` text NOT NULL DEFAULT (''), `account_label` text NOT NULL DEFAULT (''), `poll_interval` integer NOT NULL, `polled_at` datetime NULL, `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, `grant_id` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- create index "deviceauthorization_company_id_user_code_hash" to table: "device_authorizations"
CREATE UNIQUE INDEX `deviceauthorization_company_id_user_code_hash` ON `device_authorizations` (`company_id`, `user_code_hash`);
-- create index "deviceauthorization_expires_at" to table: "device_authorizations"
CREATE INDEX `deviceauthorization_expires_at` ON `device_authorizations` (`expires_at`);
-- create "grants" table
CREATE TABLE `grants` (`id` text NOT NULL, `company_id` text NOT NULL, `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `user_id` text NOT NULL, `account` text NOT NULL, `account_label` text NOT NULL DEFAULT (''), `scope` text NOT NULL, `sign_in` text NOT NULL, `created_at` datetime NOT NULL, `expires_at` datetime NULL, `last_used_at` datetime NOT NULL, `ended_at` datetime NULL, `end_reason` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- create index "grant_company_id_created_at_id" to table: "grants"
CREATE INDEX `grant_company_id_created_at_id` ON `grants` (`company_id`, `created_at`, `id`);
-- create index "grant_company_id_account_created_at" to table: "grants"
CREATE INDEX `grant_company_id_account_created_at` ON `grants` (`company_id`, `account`, `created_at`);
-- create index "grant_company_id_client_id" to table: "grants"
CREATE INDEX `grant_company_id_client_id` ON `grants` (`company_id`, `client_id`);
-- create index "grant_expires_at" to table: "grants"
CREATE INDEX `grant_expires_at` ON `grants` (`expires_at`);
-- create index "grant_ended_at" to table: "grants"
CREATE INDEX `grant_ended_at` ON `grants` (`ended_at`);
-- create "page_designs" table
CREATE TABLE `page_designs` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `settings` json NOT NULL, `logo` blob NULL, `logo_type` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- create index "pagedesign_company_id" to table: "page_designs"
CREATE UNIQUE INDEX `pagedesign_company_id` ON `page_designs` (`company_id`);
-- create "sign_ins" table
CREATE TABLE `sign_ins` (`id` text NOT NULL, `company_id` text NOT NULL, `kind` text NOT NULL, `stage` text NOT NULL DEFAULT ('login'), `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `agent_logo_uri` text NOT NULL DEFAULT (''), `scope` text NOT NULL, `ui_locale` text NOT NULL DEFAULT (''), `redirect_uri` text NOT NULL DEFAULT (''), `state` text NOT NULL DEFAULT (''), `code_challenge` text NOT NULL DEFAULT (''), `device_id` text NOT NULL DEFAULT (''), `session_id` text NOT NULL DEFAULT (''), `user_id` text NOT NULL DEFAULT (''), `browser_hash` text NOT NULL DEFAULT (''), `upstream_hash` text NULL, `sealed` blob NULL, `account` text NOT NULL DEFAULT (''), `account_label` text NOT NULL DEFAULT (''), `code_sent_to` text NOT NULL DEFAULT (''), `code_attempts` integer NOT NULL DEFAULT (0), `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), PRIMARY KEY (`id`));
-- create index "signin_company_id_upstream_hash" to table: "sign_ins"
CREATE UNIQUE INDEX `signin_company_id_upstream_hash` ON `sign_ins` (`company_id`, `upstream_hash`);
-- create index "signin_expires_at" to table: "sign_ins"
CREATE INDEX `signin_expires_at` ON `sign_ins` (`expires_at`);
-- create "sign_in_attempts" table
CREATE TABLE `sign_in_attempts` (`id` text NOT NULL, `company_id` text NOT NULL, `count` integer NOT NULL, `window_ends_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "signinattempt_window_ends_at" to table: "sign_in_attempts"
CREATE INDEX `signinattempt_window_ends_at` ON `sign_in_attempts` (`window_ends_at`);
-- create "sign_in_connections" table
CREATE TABLE `sign_in_connections` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `settings` json NOT NULL, `sealed_secret` blob NULL, `sealed_accounts` blob NULL, PRIMARY KEY (`id`));
-- create index "signinconnection_company_id" to table: "sign_in_connections"
CREATE UNIQUE INDEX `signinconnection_company_id` ON `sign_in_connections` (`company_id`);
-- enable back the enforcement of foreign-keys constraints
PRAGMA foreign_keys = on;

-- +goose Down
-- reverse: create index "signinconnection_company_id" to table: "sign_in_connections"
DROP INDEX `signinconnection_company_id`;
-- reverse: create "sign_in_connections" table
DROP TABLE `sign_in_connections`;
-- reverse: create index "signinattempt_window_ends_at" to table: "sign_in_attempts"
DROP INDEX `signinattempt_window_ends_at`;
-- reverse: create "sign_in_attempts" table
DROP TABLE `sign_in_attempts`;
-- reverse: create index "signin_expires_at" to table: "sign_ins"
DROP INDEX `signin_expires_at`;
-- reverse: create index "signin_company_id_upstream_hash" to table: "sign_ins"
DROP INDEX `signin_company_id_upstream_hash`;
-- reverse: create "sign_ins" table
DROP TABLE `sign_ins`;
-- reverse: create index "pagedesign_company_id" to table: "page_designs"
DROP INDEX `pagedesign_company_id`;
-- reverse: create "page_designs" table
DROP TABLE `page_designs`;
-- reverse: create index "grant_ended_at" to table: "grants"
DROP INDEX `grant_ended_at`;
-- reverse: create index "grant_expires_at" to table: "grants"
DROP INDEX `grant_expires_at`;
-- reverse: create index "grant_company_id_client_id" to table: "grants"
DROP INDEX `grant_company_id_client_id`;
-- reverse: create index "grant_company_id_account_created_at" to table: "grants"
DROP INDEX `grant_company_id_account_created_at`;
-- reverse: create index "grant_company_id_created_at_id" to table: "grants"
DROP INDEX `grant_company_id_created_at_id`;
-- reverse: create "grants" table
DROP TABLE `grants`;
-- reverse: create index "deviceauthorization_expires_at" to table: "device_authorizations"
DROP INDEX `deviceauthorization_expires_at`;
-- reverse: create index "deviceauthorization_company_id_user_code_hash" to table: "device_authorizations"
DROP INDEX `deviceauthorization_company_id_user_code_hash`;
-- reverse: create "device_authorizations" table
DROP TABLE `device_authorizations`;
-- reverse: create index "authorizationcode_expires_at" to table: "authorization_codes"
DROP INDEX `authorizationcode_expires_at`;
-- reverse: create "authorization_codes" table
DROP TABLE `authorization_codes`;
-- reverse: create index "accounttoken_company_id_grant_id" to table: "account_tokens"
DROP INDEX `accounttoken_company_id_grant_id`;
-- reverse: create "account_tokens" table
DROP TABLE `account_tokens`;
-- reverse: create index "sessiontoken_company_id_grant_id" to table: "session_tokens"
DROP INDEX `sessiontoken_company_id_grant_id`;
-- reverse: create index "sessiontoken_expires_at" to table: "session_tokens"
DROP INDEX `sessiontoken_expires_at`;
-- reverse: create index "sessiontoken_company_id_session_id" to table: "session_tokens"
DROP INDEX `sessiontoken_company_id_session_id`;
-- reverse: create "new_session_tokens" table
DROP TABLE `new_session_tokens`;
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
