-- +goose Up
-- create "quota" table
CREATE TABLE "quota" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "sessions" bigint NOT NULL DEFAULT 0, "messages" bigint NOT NULL DEFAULT 0, "deliveries" bigint NOT NULL DEFAULT 0, "verifications" bigint NOT NULL DEFAULT 0, PRIMARY KEY ("id"));
-- create index "quota_company_id" to table: "quota"
CREATE UNIQUE INDEX "quota_company_id" ON "quota" ("company_id");
-- create "usages" table
CREATE TABLE "usages" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "day" character varying NOT NULL, "kind" character varying NOT NULL, "count" bigint NOT NULL, PRIMARY KEY ("id"));
-- create index "usage_company_id_day_kind" to table: "usages"
CREATE UNIQUE INDEX "usage_company_id_day_kind" ON "usages" ("company_id", "day", "kind");

-- +goose Down
-- reverse: create index "usage_company_id_day_kind" to table: "usages"
DROP INDEX "usage_company_id_day_kind";
-- reverse: create "usages" table
DROP TABLE "usages";
-- reverse: create index "quota_company_id" to table: "quota"
DROP INDEX "quota_company_id";
-- reverse: create "quota" table
DROP TABLE "quota";
