-- +goose Up
-- disable the enforcement of foreign-keys constraints
PRAGMA foreign_keys = off;
-- create "new_authorization_codes" table
CREATE TABLE `new_authorization_codes` (`id` text NOT NULL, `company_id` text NOT NULL, `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `redirect_uri` text NOT NULL, `code_challenge` text NOT NULL, `resource` text NOT NULL DEFAULT (''), `scope` text NOT NULL, `account` text NOT NULL, `account_label` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, `consumed_at` datetime NULL, `grant_id` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- copy rows from old table "authorization_codes" to new temporary table "new_authorization_codes"
INSERT INTO `new_authorization_codes` (`id`, `company_id`, `client_id`, `agent_name`, `redirect_uri`, `code_challenge`, `scope`, `account`, `account_label`, `created_at`, `expires_at`, `consumed_at`, `grant_id`) SELECT `id`, `company_id`, `client_id`, `agent_name`, `redirect_uri`, `code_challenge`, `scope`, `account`, `account_label`, `created_at`, `expires_at`, `consumed_at`, `grant_id` FROM `authorization_codes`;
-- drop "authorization_codes" table after copying rows
DROP TABLE `authorization_codes`;
-- rename temporary table "new_authorization_codes" to "authorization_codes"
ALTER TABLE `new_authorization_codes` RENAME TO `authorization_codes`;
-- create index "authorizationcode_expires_at" to table: "authorization_codes"
CREATE INDEX `authorizationcode_expires_at` ON `authorization_codes` (`expires_at`);
-- create "new_grants" table
CREATE TABLE `new_grants` (`id` text NOT NULL, `company_id` text NOT NULL, `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `user_id` text NOT NULL, `account` text NOT NULL, `account_label` text NOT NULL DEFAULT (''), `scope` text NOT NULL, `sign_in` text NOT NULL, `resource` text NOT NULL DEFAULT (''), `created_at` datetime NOT NULL, `expires_at` datetime NULL, `last_used_at` datetime NOT NULL, `ended_at` datetime NULL, `end_reason` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- copy rows from old table "grants" to new temporary table "new_grants"
INSERT INTO `new_grants` (`id`, `company_id`, `client_id`, `agent_name`, `user_id`, `account`, `account_label`, `scope`, `sign_in`, `created_at`, `expires_at`, `last_used_at`, `ended_at`, `end_reason`) SELECT `id`, `company_id`, `client_id`, `agent_name`, `user_id`, `account`, `account_label`, `scope`, `sign_in`, `created_at`, `expires_at`, `last_used_at`, `ended_at`, `end_reason` FROM `grants`;
-- drop "grants" table after copying rows
DROP TABLE `grants`;
-- rename temporary table "new_grants" to "grants"
ALTER TABLE `new_grants` RENAME TO `grants`;
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
-- create "new_sign_ins" table
CREATE TABLE `new_sign_ins` (`id` text NOT NULL, `company_id` text NOT NULL, `kind` text NOT NULL, `stage` text NOT NULL DEFAULT ('login'), `client_id` text NOT NULL, `agent_name` text NOT NULL DEFAULT (''), `agent_logo_uri` text NOT NULL DEFAULT (''), `scope` text NOT NULL, `ui_locale` text NOT NULL DEFAULT (''), `redirect_uri` text NOT NULL DEFAULT (''), `state` text NOT NULL DEFAULT (''), `code_challenge` text NOT NULL DEFAULT (''), `resource` text NOT NULL DEFAULT (''), `device_id` text NOT NULL DEFAULT (''), `session_id` text NOT NULL DEFAULT (''), `user_id` text NOT NULL DEFAULT (''), `browser_hash` text NOT NULL DEFAULT (''), `upstream_hash` text NULL, `sealed` blob NULL, `account` text NOT NULL DEFAULT (''), `account_label` text NOT NULL DEFAULT (''), `code_sent_to` text NOT NULL DEFAULT (''), `code_attempts` integer NOT NULL DEFAULT (0), `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), PRIMARY KEY (`id`));
-- copy rows from old table "sign_ins" to new temporary table "new_sign_ins"
INSERT INTO `new_sign_ins` (`id`, `company_id`, `kind`, `stage`, `client_id`, `agent_name`, `agent_logo_uri`, `scope`, `ui_locale`, `redirect_uri`, `state`, `code_challenge`, `device_id`, `session_id`, `user_id`, `browser_hash`, `upstream_hash`, `sealed`, `account`, `account_label`, `code_sent_to`, `code_attempts`, `created_at`, `expires_at`, `version`) SELECT `id`, `company_id`, `kind`, `stage`, `client_id`, `agent_name`, `agent_logo_uri`, `scope`, `ui_locale`, `redirect_uri`, `state`, `code_challenge`, `device_id`, `session_id`, `user_id`, `browser_hash`, `upstream_hash`, `sealed`, `account`, `account_label`, `code_sent_to`, `code_attempts`, `created_at`, `expires_at`, `version` FROM `sign_ins`;
-- drop "sign_ins" table after copying rows
DROP TABLE `sign_ins`;
-- rename temporary table "new_sign_ins" to "sign_ins"
ALTER TABLE `new_sign_ins` RENAME TO `sign_ins`;
-- create index "signin_company_id_upstream_hash" to table: "sign_ins"
CREATE UNIQUE INDEX `signin_company_id_upstream_hash` ON `sign_ins` (`company_id`, `upstream_hash`);
-- create index "signin_expires_at" to table: "sign_ins"
CREATE INDEX `signin_expires_at` ON `sign_ins` (`expires_at`);
-- create "registered_clients" table
CREATE TABLE `registered_clients` (`id` text NOT NULL, `company_id` text NOT NULL, `name` text NOT NULL DEFAULT (''), `redirect_uris` json NOT NULL, `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "registeredclient_company_id_expires_at" to table: "registered_clients"
CREATE INDEX `registeredclient_company_id_expires_at` ON `registered_clients` (`company_id`, `expires_at`);
-- create index "registeredclient_expires_at" to table: "registered_clients"
CREATE INDEX `registeredclient_expires_at` ON `registered_clients` (`expires_at`);
-- enable back the enforcement of foreign-keys constraints
PRAGMA foreign_keys = on;

-- +goose Down
-- reverse: create index "registeredclient_expires_at" to table: "registered_clients"
DROP INDEX `registeredclient_expires_at`;
-- reverse: create index "registeredclient_company_id_expires_at" to table: "registered_clients"
DROP INDEX `registeredclient_company_id_expires_at`;
-- reverse: create "registered_clients" table
DROP TABLE `registered_clients`;
-- reverse: create index "signin_expires_at" to table: "sign_ins"
DROP INDEX `signin_expires_at`;
-- reverse: create index "signin_company_id_upstream_hash" to table: "sign_ins"
DROP INDEX `signin_company_id_upstream_hash`;
-- reverse: create "new_sign_ins" table
DROP TABLE `new_sign_ins`;
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
-- reverse: create "new_grants" table
DROP TABLE `new_grants`;
-- reverse: create index "authorizationcode_expires_at" to table: "authorization_codes"
DROP INDEX `authorizationcode_expires_at`;
-- reverse: create "new_authorization_codes" table
DROP TABLE `new_authorization_codes`;
