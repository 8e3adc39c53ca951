-- +goose Up
-- modify "authorization_codes" table
ALTER TABLE "authorization_codes" ADD COLUMN "resource" character varying NOT NULL DEFAULT '';
-- modify "grants" table
ALTER TABLE "grants" ADD COLUMN "resource" character varying NOT NULL DEFAULT '';
-- modify "sign_ins" table
ALTER TABLE "sign_ins" ADD COLUMN "resource" character varying NOT NULL DEFAULT '';
-- create "registered_clients" table
CREATE TABLE "registered_clients" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "name" character varying NOT NULL DEFAULT '', "redirect_uris" jsonb NOT NULL, "created_at" timestamptz NOT NULL, "expires_at" timestamptz NOT NULL, PRIMARY KEY ("id"));
-- create index "registeredclient_company_id_expires_at" to table: "registered_clients"
CREATE INDEX "registeredclient_company_id_expires_at" ON "registered_clients" ("company_id", "expires_at");
-- create index "registeredclient_expires_at" to table: "registered_clients"
CREATE INDEX "registeredclient_expires_at" ON "registered_clients" ("expires_at");

-- +goose Down
-- reverse: create index "registeredclient_expires_at" to table: "registered_clients"
DROP INDEX "registeredclient_expires_at";
-- reverse: create index "registeredclient_company_id_expires_at" to table: "registered_clients"
DROP INDEX "registeredclient_company_id_expires_at";
-- reverse: create "registered_clients" table
DROP TABLE "registered_clients";
-- reverse: modify "sign_ins" table
ALTER TABLE "sign_ins" DROP COLUMN "resource";
-- reverse: modify "grants" table
ALTER TABLE "grants" DROP COLUMN "resource";
-- reverse: modify "authorization_codes" table
ALTER TABLE "authorization_codes" DROP COLUMN "resource";
