-- +goose Up
-- create "admissions" table
CREATE TABLE "admissions" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "mode" character varying NOT NULL DEFAULT 'open', "require_dpop_nonce" boolean NOT NULL DEFAULT false, PRIMARY KEY ("id"));
-- create index "admission_company_id" to table: "admissions"
CREATE UNIQUE INDEX "admission_company_id" ON "admissions" ("company_id");
-- create "admission_rules" table
CREATE TABLE "admission_rules" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "client_id" character varying NOT NULL, "effect" character varying NOT NULL, "reason" character varying NOT NULL DEFAULT '', "expires_at" timestamptz NULL, "created_at" timestamptz NOT NULL, PRIMARY KEY ("id"));
-- create index "admissionrule_company_id_client_id" to table: "admission_rules"
CREATE UNIQUE INDEX "admissionrule_company_id_client_id" ON "admission_rules" ("company_id", "client_id");
-- create "answered_requests" table
CREATE TABLE "answered_requests" ("id" character varying NOT NULL, "method" character varying NOT NULL, "request_hash" bytea NOT NULL, "response" bytea NULL, "created_at" timestamptz NOT NULL, PRIMARY KEY ("id"));
-- create index "answeredrequest_created_at" to table: "answered_requests"
CREATE INDEX "answeredrequest_created_at" ON "answered_requests" ("created_at");
-- create "api_keys" table
CREATE TABLE "api_keys" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "scopes" jsonb NOT NULL, "display_name" character varying NOT NULL DEFAULT '', "hash" character varying NOT NULL, "prefix" character varying NOT NULL DEFAULT '', "expires_at" timestamptz NULL, "revoked_at" timestamptz NULL, "last_used_at" timestamptz NULL, "created_at" timestamptz NOT NULL, "creator" character varying NOT NULL DEFAULT '', PRIMARY KEY ("id"));
-- create index "apikey_company_id_created_at_id" to table: "api_keys"
CREATE INDEX "apikey_company_id_created_at_id" ON "api_keys" ("company_id", "created_at", "id");
-- create index "apikey_hash" to table: "api_keys"
CREATE UNIQUE INDEX "apikey_hash" ON "api_keys" ("hash");
-- create "backends" table
CREATE TABLE "backends" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "url" character varying NOT NULL DEFAULT '', "enabled" boolean NOT NULL DEFAULT true, "disable_reason" character varying NOT NULL DEFAULT '', "attempt_timeout_ms" bigint NOT NULL DEFAULT 0, "deliver_late" boolean NOT NULL DEFAULT true, PRIMARY KEY ("id"));
-- create index "backend_company_id" to table: "backends"
CREATE UNIQUE INDEX "backend_company_id" ON "backends" ("company_id");
-- create "companies" table
CREATE TABLE "companies" ("id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "organization" character varying NOT NULL DEFAULT '', "slug" character varying NOT NULL, "display_name" character varying NOT NULL DEFAULT '', "kind" character varying NOT NULL DEFAULT 'live', "state" character varying NOT NULL DEFAULT 'setting_up', "issuer" character varying NOT NULL, "issuer_host" character varying NOT NULL, "issuer_path" character varying NOT NULL DEFAULT '', "published_at" timestamptz NULL, "settings" jsonb NULL, "settings_updated_at" timestamptz NOT NULL, "limits" jsonb NULL, "limits_updated_at" timestamptz NOT NULL, "creator" character varying NOT NULL DEFAULT '', PRIMARY KEY ("id"));
-- create index "companies_issuer_key" to table: "companies"
CREATE UNIQUE INDEX "companies_issuer_key" ON "companies" ("issuer");
-- create index "companies_slug_key" to table: "companies"
CREATE UNIQUE INDEX "companies_slug_key" ON "companies" ("slug");
-- create index "company_created_at_id" to table: "companies"
CREATE INDEX "company_created_at_id" ON "companies" ("created_at", "id");
-- create index "company_issuer_host_issuer_path" to table: "companies"
CREATE UNIQUE INDEX "company_issuer_host_issuer_path" ON "companies" ("issuer_host", "issuer_path");
-- create "conversations" table
CREATE TABLE "conversations" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "client_id" character varying NOT NULL, "agent_name" character varying NOT NULL DEFAULT '', "user_id" character varying NOT NULL, "account" character varying NOT NULL DEFAULT '', "session_id" character varying NOT NULL, "status" character varying NOT NULL DEFAULT 'idle', "responder" character varying NOT NULL DEFAULT 'agent', "context" jsonb NULL, "cursor_key" bytea NOT NULL, "last_sequence" bigint NOT NULL DEFAULT 0, "oldest_sequence" bigint NOT NULL DEFAULT 1, "answer_due_at" timestamptz NULL, "last_event_at" timestamptz NOT NULL, "closed_by" character varying NOT NULL DEFAULT '', PRIMARY KEY ("id"));
-- create index "conversation_answer_due_at" to table: "conversations"
CREATE INDEX "conversation_answer_due_at" ON "conversations" ("answer_due_at") WHERE (answer_due_at IS NOT NULL);
-- create index "conversation_company_id_last_event_at_id" to table: "conversations"
CREATE INDEX "conversation_company_id_last_event_at_id" ON "conversations" ("company_id", "last_event_at", "id");
-- create index "conversation_status_last_event_at" to table: "conversations"
CREATE INDEX "conversation_status_last_event_at" ON "conversations" ("status", "last_event_at");
-- create "deliveries" table
CREATE TABLE "deliveries" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "conversation_id" character varying NOT NULL, "sequence" bigint NOT NULL, "state" character varying NOT NULL DEFAULT 'pending', "attempts" bigint NOT NULL DEFAULT 0, "next_attempt_at" timestamptz NOT NULL, "lease_owner" character varying NOT NULL DEFAULT '', "lease_until" timestamptz NULL, "expects_reply" boolean NOT NULL, "reply_by" timestamptz NULL, "session" jsonb NOT NULL, "context" jsonb NULL, "traceparent" character varying NOT NULL DEFAULT '', "last_status" bigint NOT NULL DEFAULT 0, "last_reason" character varying NOT NULL DEFAULT '', "agent_outcome" character varying NOT NULL DEFAULT '', "created_at" timestamptz NOT NULL, "done_at" timestamptz NULL, PRIMARY KEY ("id"));
-- create index "delivery_company_id_conversation_id_sequence" to table: "deliveries"
CREATE UNIQUE INDEX "delivery_company_id_conversation_id_sequence" ON "deliveries" ("company_id", "conversation_id", "sequence");
-- create index "delivery_next_attempt_at" to table: "deliveries"
CREATE INDEX "delivery_next_attempt_at" ON "deliveries" ("next_attempt_at") WHERE ((state)::text = 'pending'::text);
-- create "domains" table
CREATE TABLE "domains" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "domain" character varying NOT NULL, "state" character varying NOT NULL DEFAULT 'pending', "challenge" character varying NOT NULL, "proof_method" character varying NOT NULL DEFAULT '', "observations" jsonb NULL, "verified_at" timestamptz NULL, "checked_at" timestamptz NULL, "next_check_at" timestamptz NULL, PRIMARY KEY ("id"));
-- create index "domain_company_id_domain" to table: "domains"
CREATE UNIQUE INDEX "domain_company_id_domain" ON "domains" ("company_id", "domain");
-- create index "domain_domain" to table: "domains"
CREATE UNIQUE INDEX "domain_domain" ON "domains" ("domain") WHERE ((state)::text = 'verified'::text);
-- create index "domain_next_check_at" to table: "domains"
CREATE INDEX "domain_next_check_at" ON "domains" ("next_check_at");
-- create "events" table
CREATE TABLE "events" ("id" bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY, "company_id" character varying NOT NULL, "conversation_id" character varying NOT NULL, "sequence" bigint NOT NULL, "type" character varying NOT NULL, "payload" bytea NULL, "owner" character varying NULL, "message_id" character varying NULL, "content_hash" bytea NULL, "first" boolean NOT NULL DEFAULT false, "created_at" timestamptz NOT NULL, PRIMARY KEY ("id"));
-- create index "event_company_id_conversation_id_sequence" to table: "events"
CREATE UNIQUE INDEX "event_company_id_conversation_id_sequence" ON "events" ("company_id", "conversation_id", "sequence");
-- create index "event_company_id_owner_message_id" to table: "events"
CREATE UNIQUE INDEX "event_company_id_owner_message_id" ON "events" ("company_id", "owner", "message_id");
-- create index "event_created_at" to table: "events"
CREATE INDEX "event_created_at" ON "events" ("created_at");
-- create "operator_keys" table
CREATE TABLE "operator_keys" ("id" character varying NOT NULL, "display_name" character varying NOT NULL DEFAULT '', "hash" character varying NOT NULL, "prefix" character varying NOT NULL DEFAULT '', "expires_at" timestamptz NULL, "revoked_at" timestamptz NULL, "last_used_at" timestamptz NULL, "created_at" timestamptz NOT NULL, "creator" character varying NOT NULL DEFAULT '', PRIMARY KEY ("id"));
-- create index "operatorkey_hash" to table: "operator_keys"
CREATE UNIQUE INDEX "operatorkey_hash" ON "operator_keys" ("hash");
-- create "sessions" table
CREATE TABLE "sessions" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "client_id" character varying NOT NULL, "agent_name" character varying NOT NULL DEFAULT '', "user_id" character varying NOT NULL, "account" character varying NOT NULL DEFAULT '', "created_at" timestamptz NOT NULL, "last_used_at" timestamptz NOT NULL, "ended_at" timestamptz NULL, PRIMARY KEY ("id"));
-- create index "session_company_id_created_at_id" to table: "sessions"
CREATE INDEX "session_company_id_created_at_id" ON "sessions" ("company_id", "created_at", "id");
-- create index "session_last_used_at" to table: "sessions"
CREATE INDEX "session_last_used_at" ON "sessions" ("last_used_at");
-- create "session_tokens" table
CREATE TABLE "session_tokens" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "session_id" character varying NOT NULL, "jkt" character varying NOT NULL DEFAULT '', "resource" character varying NOT NULL DEFAULT '', "scope" character varying NOT NULL DEFAULT '', "signed_in" boolean NOT NULL DEFAULT false, "created_at" timestamptz NOT NULL, "expires_at" timestamptz NOT NULL, "revoked_at" timestamptz NULL, PRIMARY KEY ("id"));
-- create index "sessiontoken_company_id_session_id" to table: "session_tokens"
CREATE INDEX "sessiontoken_company_id_session_id" ON "session_tokens" ("company_id", "session_id");
-- create index "sessiontoken_expires_at" to table: "session_tokens"
CREATE INDEX "sessiontoken_expires_at" ON "session_tokens" ("expires_at");
-- create "webhook_secrets" table
CREATE TABLE "webhook_secrets" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "kind" character varying NOT NULL, "sealed" bytea NOT NULL, "public_key" character varying NOT NULL DEFAULT '', "prefix" character varying NOT NULL DEFAULT '', "created_at" timestamptz NOT NULL, "expires_at" timestamptz NULL, PRIMARY KEY ("id"));
-- create index "webhooksecret_company_id_created_at" to table: "webhook_secrets"
CREATE INDEX "webhooksecret_company_id_created_at" ON "webhook_secrets" ("company_id", "created_at");

-- +goose Down
-- reverse: create index "webhooksecret_company_id_created_at" to table: "webhook_secrets"
DROP INDEX "webhooksecret_company_id_created_at";
-- reverse: create "webhook_secrets" table
DROP TABLE "webhook_secrets";
-- reverse: create index "sessiontoken_expires_at" to table: "session_tokens"
DROP INDEX "sessiontoken_expires_at";
-- reverse: create index "sessiontoken_company_id_session_id" to table: "session_tokens"
DROP INDEX "sessiontoken_company_id_session_id";
-- reverse: create "session_tokens" table
DROP TABLE "session_tokens";
-- reverse: create index "session_last_used_at" to table: "sessions"
DROP INDEX "session_last_used_at";
-- reverse: create index "session_company_id_created_at_id" to table: "sessions"
DROP INDEX "session_company_id_created_at_id";
-- reverse: create "sessions" table
DROP TABLE "sessions";
-- reverse: create index "operatorkey_hash" to table: "operator_keys"
DROP INDEX "operatorkey_hash";
-- reverse: create "operator_keys" table
DROP TABLE "operator_keys";
-- reverse: create index "event_created_at" to table: "events"
DROP INDEX "event_created_at";
-- reverse: create index "event_company_id_owner_message_id" to table: "events"
DROP INDEX "event_company_id_owner_message_id";
-- reverse: create index "event_company_id_conversation_id_sequence" to table: "events"
DROP INDEX "event_company_id_conversation_id_sequence";
-- reverse: create "events" table
DROP TABLE "events";
-- reverse: create index "domain_next_check_at" to table: "domains"
DROP INDEX "domain_next_check_at";
-- reverse: create index "domain_domain" to table: "domains"
DROP INDEX "domain_domain";
-- reverse: create index "domain_company_id_domain" to table: "domains"
DROP INDEX "domain_company_id_domain";
-- reverse: create "domains" table
DROP TABLE "domains";
-- reverse: create index "delivery_next_attempt_at" to table: "deliveries"
DROP INDEX "delivery_next_attempt_at";
-- reverse: create index "delivery_company_id_conversation_id_sequence" to table: "deliveries"
DROP INDEX "delivery_company_id_conversation_id_sequence";
-- reverse: create "deliveries" table
DROP TABLE "deliveries";
-- reverse: create index "conversation_status_last_event_at" to table: "conversations"
DROP INDEX "conversation_status_last_event_at";
-- reverse: create index "conversation_company_id_last_event_at_id" to table: "conversations"
DROP INDEX "conversation_company_id_last_event_at_id";
-- reverse: create index "conversation_answer_due_at" to table: "conversations"
DROP INDEX "conversation_answer_due_at";
-- reverse: create "conversations" table
DROP TABLE "conversations";
-- reverse: create index "company_issuer_host_issuer_path" to table: "companies"
DROP INDEX "company_issuer_host_issuer_path";
-- reverse: create index "company_created_at_id" to table: "companies"
DROP INDEX "company_created_at_id";
-- reverse: create index "companies_slug_key" to table: "companies"
DROP INDEX "companies_slug_key";
-- reverse: create index "companies_issuer_key" to table: "companies"
DROP INDEX "companies_issuer_key";
-- reverse: create "companies" table
DROP TABLE "companies";
-- reverse: create index "backend_company_id" to table: "backends"
DROP INDEX "backend_company_id";
-- reverse: create "backends" table
DROP TABLE "backends";
-- reverse: create index "apikey_hash" to table: "api_keys"
DROP INDEX "apikey_hash";
-- reverse: create index "apikey_company_id_created_at_id" to table: "api_keys"
DROP INDEX "apikey_company_id_created_at_id";
-- reverse: create "api_keys" table
DROP TABLE "api_keys";
-- reverse: create index "answeredrequest_created_at" to table: "answered_requests"
DROP INDEX "answeredrequest_created_at";
-- reverse: create "answered_requests" table
DROP TABLE "answered_requests";
-- reverse: create index "admissionrule_company_id_client_id" to table: "admission_rules"
DROP INDEX "admissionrule_company_id_client_id";
-- reverse: create "admission_rules" table
DROP TABLE "admission_rules";
-- reverse: create index "admission_company_id" to table: "admissions"
DROP INDEX "admission_company_id";
-- reverse: create "admissions" table
DROP TABLE "admissions";
