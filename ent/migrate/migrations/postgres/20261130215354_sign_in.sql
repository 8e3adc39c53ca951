-- +goose Up
-- modify "session_tokens" table
ALTER TABLE "session_tokens" ADD COLUMN "grant_id" character varying NOT NULL DEFAULT '';
-- create index "sessiontoken_company_id_grant_id" to table: "session_tokens"
CREATE INDEX "sessiontoken_company_id_grant_id" ON "session_tokens" ("company_id", "grant_id");
-- modify "sessions" table
ALTER TABLE "sessions" ADD COLUMN "grant_id" character varying NOT NULL DEFAULT '';
-- create index "session_company_id_client_id" to table: "sessions"
CREATE INDEX "session_company_id_client_id" ON "sessions" ("company_id", "client_id");
-- create index "session_company_id_grant_id" to table: "sessions"
CREATE INDEX "session_company_id_grant_id" ON "sessions" ("company_id", "grant_id");
-- create "account_tokens" table
CREATE TABLE "account_tokens" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "grant_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "replaced_at" timestamptz NULL, PRIMARY KEY ("id"));
-- create index "accounttoken_company_id_grant_id" to table: "account_tokens"
CREATE INDEX "accounttoken_company_id_grant_id" ON "account_tokens" ("company_id", "grant_id");
-- create "authorization_codes" table
CREATE TABLE "authorization_codes" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "client_id" character varying NOT NULL, "agent_name" character varying NOT NULL DEFAULT '', "redirect_uri" character varying NOT NULL, "code_challenge" character varying NOT NULL, "scope" character varying NOT NULL, "account" character varying NOT NULL, "account_label" character varying NOT NULL DEFAULT '', "created_at" timestamptz NOT NULL, "expires_at" timestamptz NOT NULL, "consumed_at" timestamptz NULL, "grant_id" character varying NOT NULL DEFAULT '', PRIMARY KEY ("id"));
-- create index "authorizationcode_expires_at" to table: "authorization_codes"
CREATE INDEX "authorizationcode_expires_at" ON "authorization_codes" ("expires_at");
-- create "device_authorizations" table
CREATE TABLE "device_authorizations" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "user_code_hash" character varying NOT NULL, "client_id" character varying NOT NULL, "agent_name" character varying NOT NULL DEFAULT '', "scope" character varying NOT NULL, "state" character varying NOT NULL DEFAULT 'pending', "approved_scope" character varying NOT NULL DEFAULT '', "account" character varying NOT NULL DEFAULT '', "account_label" character varying NOT NULL DEFAULT '', "poll_interval" bigint NOT NULL, "polled_at" timestamptz NULL, "created_at" timestamptz NOT NULL, "expires_at" timestamptz NOT NULL, "grant_id" character varying NOT NULL DEFAULT '', PRIMARY KEY ("id"));
-- create index "deviceauthorization_company_id_user_code_hash" to table: "device_authorizations"
CREATE UNIQUE INDEX "deviceauthorization_company_id_user_code_hash" ON "device_authorizations" ("company_id", "user_code_hash");
-- create index "deviceauthorization_expires_at" to table: "device_authorizations"
CREATE INDEX "deviceauthorization_expires_at" ON "device_authorizations" ("expires_at");
-- create "grants" table
CREATE TABLE "grants" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "client_id" character varying NOT NULL, "agent_name" character varying NOT NULL DEFAULT '', "user_id" character varying NOT NULL, "account" character varying NOT NULL, "account_label" character varying NOT NULL DEFAULT '', "scope" character varying NOT NULL, "sign_in" character varying NOT NULL, "created_at" timestamptz NOT NULL, "expires_at" timestamptz NULL, "last_used_at" timestamptz NOT NULL, "ended_at" timestamptz NULL, "end_reason" character varying NOT NULL DEFAULT '', PRIMARY KEY ("id"));
-- create index "grant_company_id_account_created_at" to table: "grants"
CREATE INDEX "grant_company_id_account_created_at" ON "grants" ("company_id", "account", "created_at");
-- create index "grant_company_id_client_id" to table: "grants"
CREATE INDEX "grant_company_id_client_id" ON "grants" ("company_id", "client_id");
-- create index "grant_company_id_created_at_id" to table: "grants"
CREATE INDEX "grant_company_id_created_at_id" ON "grants" ("company_id", "created_at", "id");
-- create index "grant_ended_at" to table: "grants"
CREATE INDEX "grant_ended_at" ON "grants" ("ended_at");
-- create index "grant_expires_at" to table: "grants"
CREATE INDEX "grant_expires_at" ON "grants" ("expires_at");
-- create "page_designs" table
CREATE TABLE "page_designs" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "settings" jsonb NOT NULL, "logo" bytea NULL, "logo_type" character varying NOT NULL DEFAULT '', PRIMARY KEY ("id"));
-- create index "pagedesign_company_id" to table: "page_designs"
CREATE UNIQUE INDEX "pagedesign_company_id" ON "page_designs" ("company_id");
-- create "sign_ins" table
CREATE TABLE "sign_ins" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "kind" character varying NOT NULL, "stage" character varying NOT NULL DEFAULT 'login', "client_id" character varying NOT NULL, "agent_name" character varying NOT NULL DEFAULT '', "agent_logo_uri" character varying NOT NULL DEFAULT '', "scope" character varying NOT NULL, "ui_locale" character varying NOT NULL DEFAULT '', "redirect_uri" character varying NOT NULL DEFAULT '', "state" character varying NOT NULL DEFAULT '', "code_challenge" character varying NOT NULL DEFAULT '', "device_id" character varying NOT NULL DEFAULT '', "session_id" character varying NOT NULL DEFAULT '', "user_id" character varying NOT NULL DEFAULT '', "browser_hash" character varying NOT NULL DEFAULT '', "upstream_hash" character varying NULL, "sealed" bytea NULL, "account" character varying NOT NULL DEFAULT '', "account_label" character varying NOT NULL DEFAULT '', "code_sent_to" character varying NOT NULL DEFAULT '', "code_attempts" bigint NOT NULL DEFAULT 0, "created_at" timestamptz NOT NULL, "expires_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, PRIMARY KEY ("id"));
-- create index "signin_company_id_upstream_hash" to table: "sign_ins"
CREATE UNIQUE INDEX "signin_company_id_upstream_hash" ON "sign_ins" ("company_id", "upstream_hash");
-- create index "signin_expires_at" to table: "sign_ins"
CREATE INDEX "signin_expires_at" ON "sign_ins" ("expires_at");
-- create "sign_in_attempts" table
CREATE TABLE "sign_in_attempts" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "count" bigint NOT NULL, "window_ends_at" timestamptz NOT NULL, PRIMARY KEY ("id"));
-- create index "signinattempt_window_ends_at" to table: "sign_in_attempts"
CREATE INDEX "signinattempt_window_ends_at" ON "sign_in_attempts" ("window_ends_at");
-- create "sign_in_connections" table
CREATE TABLE "sign_in_connections" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "settings" jsonb NOT NULL, "sealed_secret" bytea NULL, "sealed_accounts" bytea NULL, PRIMARY KEY ("id"));
-- create index "signinconnection_company_id" to table: "sign_in_connections"
CREATE UNIQUE INDEX "signinconnection_company_id" ON "sign_in_connections" ("company_id");

-- +goose Down
-- reverse: create index "signinconnection_company_id" to table: "sign_in_connections"
DROP INDEX "signinconnection_company_id";
-- reverse: create "sign_in_connections" table
DROP TABLE "sign_in_connections";
-- reverse: create index "signinattempt_window_ends_at" to table: "sign_in_attempts"
DROP INDEX "signinattempt_window_ends_at";
-- reverse: create "sign_in_attempts" table
DROP TABLE "sign_in_attempts";
-- reverse: create index "signin_expires_at" to table: "sign_ins"
DROP INDEX "signin_expires_at";
-- reverse: create index "signin_company_id_upstream_hash" to table: "sign_ins"
DROP INDEX "signin_company_id_upstream_hash";
-- reverse: create "sign_ins" table
DROP TABLE "sign_ins";
-- reverse: create index "pagedesign_company_id" to table: "page_designs"
DROP INDEX "pagedesign_company_id";
-- reverse: create "page_designs" table
DROP TABLE "page_designs";
-- reverse: create index "grant_expires_at" to table: "grants"
DROP INDEX "grant_expires_at";
-- reverse: create index "grant_ended_at" to table: "grants"
DROP INDEX "grant_ended_at";
-- reverse: create index "grant_company_id_created_at_id" to table: "grants"
DROP INDEX "grant_company_id_created_at_id";
-- reverse: create index "grant_company_id_client_id" to table: "grants"
DROP INDEX "grant_company_id_client_id";
-- reverse: create index "grant_company_id_account_created_at" to table: "grants"
DROP INDEX "grant_company_id_account_created_at";
-- reverse: create "grants" table
DROP TABLE "grants";
-- reverse: create index "deviceauthorization_expires_at" to table: "device_authorizations"
DROP INDEX "deviceauthorization_expires_at";
-- reverse: create index "deviceauthorization_company_id_user_code_hash" to table: "device_authorizations"
DROP INDEX "deviceauthorization_company_id_user_code_hash";
-- reverse: create "device_authorizations" table
DROP TABLE "device_authorizations";
-- reverse: create index "authorizationcode_expires_at" to table: "authorization_codes"
DROP INDEX "authorizationcode_expires_at";
-- reverse: create "authorization_codes" table
DROP TABLE "authorization_codes";
-- reverse: create index "accounttoken_company_id_grant_id" to table: "account_tokens"
DROP INDEX "accounttoken_company_id_grant_id";
-- reverse: create "account_tokens" table
DROP TABLE "account_tokens";
-- reverse: create index "session_company_id_grant_id" to table: "sessions"
DROP INDEX "session_company_id_grant_id";
-- reverse: create index "session_company_id_client_id" to table: "sessions"
DROP INDEX "session_company_id_client_id";
-- reverse: modify "sessions" table
ALTER TABLE "sessions" DROP COLUMN "grant_id";
-- reverse: create index "sessiontoken_company_id_grant_id" to table: "session_tokens"
DROP INDEX "sessiontoken_company_id_grant_id";
-- reverse: modify "session_tokens" table
ALTER TABLE "session_tokens" DROP COLUMN "grant_id";
