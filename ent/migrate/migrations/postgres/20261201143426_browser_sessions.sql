-- +goose Up
-- modify "companies" table
ALTER TABLE "companies" ADD COLUMN "browser_host" character varying NOT NULL DEFAULT '';
-- create index "company_browser_host" to table: "companies"
CREATE INDEX "company_browser_host" ON "companies" ("browser_host");
-- create "browser_cookies" table
CREATE TABLE "browser_cookies" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "session_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "expires_at" timestamptz NOT NULL, PRIMARY KEY ("id"));
-- create index "browsercookie_company_id_session_id" to table: "browser_cookies"
CREATE UNIQUE INDEX "browsercookie_company_id_session_id" ON "browser_cookies" ("company_id", "session_id");
-- create index "browsercookie_expires_at" to table: "browser_cookies"
CREATE INDEX "browsercookie_expires_at" ON "browser_cookies" ("expires_at");

-- +goose Down
-- reverse: create index "browsercookie_expires_at" to table: "browser_cookies"
DROP INDEX "browsercookie_expires_at";
-- reverse: create index "browsercookie_company_id_session_id" to table: "browser_cookies"
DROP INDEX "browsercookie_company_id_session_id";
-- reverse: create "browser_cookies" table
DROP TABLE "browser_cookies";
-- reverse: create index "company_browser_host" to table: "companies"
DROP INDEX "company_browser_host";
-- reverse: modify "companies" table
ALTER TABLE "companies" DROP COLUMN "browser_host";
