-- +goose Up
-- disable the enforcement of foreign-keys constraints
PRAGMA foreign_keys = off;
-- create "new_companies" table
CREATE TABLE `new_companies` (`id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `organization` text NOT NULL DEFAULT (''), `slug` text NOT NULL, `display_name` text NOT NULL DEFAULT (''), `kind` text NOT NULL DEFAULT ('live'), `state` text NOT NULL DEFAULT ('setting_up'), `issuer` text NOT NULL, `issuer_host` text NOT NULL, `issuer_path` text NOT NULL DEFAULT (''), `browser_host` text NOT NULL DEFAULT (''), `published_at` datetime NULL, `settings` json NULL, `settings_updated_at` datetime NOT NULL, `limits` json NULL, `limits_updated_at` datetime NOT NULL, `creator` text NOT NULL DEFAULT (''), PRIMARY KEY (`id`));
-- copy rows from old table "companies" to new temporary table "new_companies"
INSERT INTO `new_companies` (`id`, `created_at`, `updated_at`, `version`, `organization`, `slug`, `display_name`, `kind`, `state`, `issuer`, `issuer_host`, `issuer_path`, `published_at`, `settings`, `settings_updated_at`, `limits`, `limits_updated_at`, `creator`) SELECT `id`, `created_at`, `updated_at`, `version`, `organization`, `slug`, `display_name`, `kind`, `state`, `issuer`, `issuer_host`, `issuer_path`, `published_at`, `settings`, `settings_updated_at`, `limits`, `limits_updated_at`, `creator` FROM `companies`;
-- drop "companies" table after copying rows
DROP TABLE `companies`;
-- rename temporary table "new_companies" to "companies"
ALTER TABLE `new_companies` RENAME TO `companies`;
-- create index "companies_slug_key" to table: "companies"
CREATE UNIQUE INDEX `companies_slug_key` ON `companies` (`slug`);
-- create index "companies_issuer_key" to table: "companies"
CREATE UNIQUE INDEX `companies_issuer_key` ON `companies` (`issuer`);
-- create index "company_issuer_host_issuer_path" to table: "companies"
CREATE UNIQUE INDEX `company_issuer_host_issuer_path` ON `companies` (`issuer_host`, `issuer_path`);
-- create index "company_browser_host" to table: "companies"
CREATE INDEX `company_browser_host` ON `companies` (`browser_host`);
-- create index "company_created_at_id" to table: "companies"
CREATE INDEX `company_created_at_id` ON `companies` (`created_at`, `id`);
-- create "browser_cookies" table
CREATE TABLE `browser_cookies` (`id` text NOT NULL, `company_id` text NOT NULL, `session_id` text NOT NULL, `created_at` datetime NOT NULL, `expires_at` datetime NOT NULL, PRIMARY KEY (`id`));
-- create index "browsercookie_company_id_session_id" to table: "browser_cookies"
CREATE UNIQUE INDEX `browsercookie_company_id_session_id` ON `browser_cookies` (`company_id`, `session_id`);
-- create index "browsercookie_expires_at" to table: "browser_cookies"
CREATE INDEX `browsercookie_expires_at` ON `browser_cookies` (`expires_at`);
-- enable back the enforcement of foreign-keys constraints
PRAGMA foreign_keys = on;

-- +goose Down
-- reverse: create index "browsercookie_expires_at" to table: "browser_cookies"
DROP INDEX `browsercookie_expires_at`;
-- reverse: create index "browsercookie_company_id_session_id" to table: "browser_cookies"
DROP INDEX `browsercookie_company_id_session_id`;
-- reverse: create "browser_cookies" table
DROP TABLE `browser_cookies`;
-- reverse: create index "company_created_at_id" to table: "companies"
DROP INDEX `company_created_at_id`;
-- reverse: create index "company_browser_host" to table: "companies"
DROP INDEX `company_browser_host`;
-- reverse: create index "company_issuer_host_issuer_path" to table: "companies"
DROP INDEX `company_issuer_host_issuer_path`;
-- reverse: create index "companies_issuer_key" to table: "companies"
DROP INDEX `companies_issuer_key`;
-- reverse: create index "companies_slug_key" to table: "companies"
DROP INDEX `companies_slug_key`;
-- reverse: create "new_companies" table
DROP TABLE `new_companies`;
