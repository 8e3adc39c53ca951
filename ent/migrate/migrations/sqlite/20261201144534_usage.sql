-- +goose Up
-- create "quota" table
CREATE TABLE `quota` (`id` text NOT NULL, `company_id` text NOT NULL, `created_at` datetime NOT NULL, `updated_at` datetime NOT NULL, `version` integer NOT NULL DEFAULT (1), `sessions` integer NOT NULL DEFAULT (0), `messages` integer NOT NULL DEFAULT (0), `deliveries` integer NOT NULL DEFAULT (0), `verifications` integer NOT NULL DEFAULT (0), PRIMARY KEY (`id`));
-- create index "quota_company_id" to table: "quota"
CREATE UNIQUE INDEX `quota_company_id` ON `quota` (`company_id`);
-- create "usages" table
CREATE TABLE `usages` (`id` text NOT NULL, `company_id` text NOT NULL, `day` text NOT NULL, `kind` text NOT NULL, `count` integer NOT NULL, PRIMARY KEY (`id`));
-- create index "usage_company_id_day_kind" to table: "usages"
CREATE UNIQUE INDEX `usage_company_id_day_kind` ON `usages` (`company_id`, `day`, `kind`);

-- +goose Down
-- reverse: create index "usage_company_id_day_kind" to table: "usages"
DROP INDEX `usage_company_id_day_kind`;
-- reverse: create "usages" table
DROP TABLE `usages`;
-- reverse: create index "quota_company_id" to table: "quota"
DROP INDEX `quota_company_id`;
-- reverse: create "quota" table
DROP TABLE `quota`;
