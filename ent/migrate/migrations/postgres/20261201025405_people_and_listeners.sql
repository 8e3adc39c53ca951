-- +goose Up
-- modify "conversations" table
ALTER TABLE "conversations" ADD COLUMN "parent_id" character varying NOT NULL DEFAULT '', ADD COLUMN "child_id" character varying NOT NULL DEFAULT '', ADD COLUMN "person" character varying NOT NULL DEFAULT '', ADD COLUMN "assignee" character varying NOT NULL DEFAULT '', ADD COLUMN "waiting_since" timestamptz NULL, ADD COLUMN "handoff_reason" character varying NOT NULL DEFAULT '', ADD COLUMN "had_handoff" boolean NOT NULL DEFAULT false;
-- create index "conversation_company_id_person" to table: "conversations"
CREATE INDEX "conversation_company_id_person" ON "conversations" ("company_id", "person") WHERE ((person)::text <> ''::text);
-- create index "conversation_company_id_waiting_since_id" to table: "conversations"
CREATE INDEX "conversation_company_id_waiting_since_id" ON "conversations" ("company_id", "waiting_since", "id") WHERE (waiting_since IS NOT NULL);
-- drop index "delivery_company_id_conversation_id_sequence" from table: "deliveries"
DROP INDEX "delivery_company_id_conversation_id_sequence";
-- modify "deliveries" table
ALTER TABLE "deliveries" ADD COLUMN "round" bigint NOT NULL DEFAULT 0;
-- create index "delivery_company_id_conversation_id_sequence_round" to table: "deliveries"
CREATE UNIQUE INDEX "delivery_company_id_conversation_id_sequence_round" ON "deliveries" ("company_id", "conversation_id", "sequence", "round");
-- create index "delivery_company_id_created_at_id" to table: "deliveries"
CREATE INDEX "delivery_company_id_created_at_id" ON "deliveries" ("company_id", "created_at", "id");
-- modify "sessions" table
ALTER TABLE "sessions" ADD COLUMN "extensions" character varying NOT NULL DEFAULT '';
-- modify "webhook_secrets" table
ALTER TABLE "webhook_secrets" ADD COLUMN "endpoint_id" character varying NOT NULL DEFAULT '';
-- create "attempts" table
CREATE TABLE "attempts" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "delivery_id" character varying NOT NULL, "endpoint_id" character varying NOT NULL, "status" bigint NOT NULL DEFAULT 0, "outcome" character varying NOT NULL, "reason" character varying NOT NULL DEFAULT '', "duration_us" bigint NOT NULL, "evidence" jsonb NULL, "created_at" timestamptz NOT NULL, PRIMARY KEY ("id"));
-- create index "attempt_company_id_delivery_id_created_at" to table: "attempts"
CREATE INDEX "attempt_company_id_delivery_id_created_at" ON "attempts" ("company_id", "delivery_id", "created_at");
-- create index "attempt_company_id_endpoint_id_created_at" to table: "attempts"
CREATE INDEX "attempt_company_id_endpoint_id_created_at" ON "attempts" ("company_id", "endpoint_id", "created_at");
-- create index "attempt_created_at" to table: "attempts"
CREATE INDEX "attempt_created_at" ON "attempts" ("created_at");
-- create "company_events" table
CREATE TABLE "company_events" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "type" character varying NOT NULL, "subject" character varying NOT NULL DEFAULT '', "body" bytea NOT NULL, "created_at" timestamptz NOT NULL, "routed_at" timestamptz NULL, PRIMARY KEY ("id"));
-- create index "company_event_unrouted" to table: "company_events"
CREATE INDEX "company_event_unrouted" ON "company_events" ("created_at") WHERE (routed_at IS NULL);
-- create index "companyevent_company_id_created_at_id" to table: "company_events"
CREATE INDEX "companyevent_company_id_created_at_id" ON "company_events" ("company_id", "created_at", "id");
-- create "endpoints" table
CREATE TABLE "endpoints" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "role" character varying NOT NULL, "kind" character varying NOT NULL DEFAULT 'webhook', "display_name" character varying NOT NULL DEFAULT '', "url" character varying NOT NULL DEFAULT '', "enabled" boolean NOT NULL DEFAULT true, "disable_reason" character varying NOT NULL DEFAULT '', "disabled_at" timestamptz NULL, "ack_timeout_ms" bigint NOT NULL DEFAULT 0, "attempt_timeout_ms" bigint NOT NULL DEFAULT 0, "deliver_late" boolean NOT NULL DEFAULT true, "settings" jsonb NULL, "sealed_credentials" bytea NULL, "failures" bigint NOT NULL DEFAULT 0, "failing_since" timestamptz NULL, "last_success_at" timestamptz NULL, PRIMARY KEY ("id"));
-- create index "endpoint_backend" to table: "endpoints"
CREATE UNIQUE INDEX "endpoint_backend" ON "endpoints" ("company_id") WHERE ((role)::text = 'answers'::text);
-- create index "endpoint_company_id_created_at_id" to table: "endpoints"
CREATE INDEX "endpoint_company_id_created_at_id" ON "endpoints" ("company_id", "created_at", "id");
-- create "endpoint_deliveries" table
CREATE TABLE "endpoint_deliveries" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "endpoint_id" character varying NOT NULL, "event_id" character varying NOT NULL, "event_type" character varying NOT NULL, "origin" character varying NOT NULL DEFAULT 'event', "state" character varying NOT NULL DEFAULT 'pending', "attempts" bigint NOT NULL DEFAULT 0, "next_attempt_at" timestamptz NOT NULL, "lease_owner" character varying NOT NULL DEFAULT '', "lease_until" timestamptz NULL, "last_status" bigint NOT NULL DEFAULT 0, "last_reason" character varying NOT NULL DEFAULT '', "created_at" timestamptz NOT NULL, "done_at" timestamptz NULL, PRIMARY KEY ("id"));
-- create index "endpoint_delivery_due" to table: "endpoint_deliveries"
CREATE INDEX "endpoint_delivery_due" ON "endpoint_deliveries" ("next_attempt_at") WHERE ((state)::text = 'pending'::text);
-- create index "endpoint_delivery_queue" to table: "endpoint_deliveries"
CREATE INDEX "endpoint_delivery_queue" ON "endpoint_deliveries" ("company_id", "endpoint_id", "next_attempt_at") WHERE ((state)::text = 'pending'::text);
-- create index "endpointdelivery_company_id_created_at_id" to table: "endpoint_deliveries"
CREATE INDEX "endpointdelivery_company_id_created_at_id" ON "endpoint_deliveries" ("company_id", "created_at", "id");
-- create index "endpointdelivery_company_id_endpoint_id_created_at_id" to table: "endpoint_deliveries"
CREATE INDEX "endpointdelivery_company_id_endpoint_id_created_at_id" ON "endpoint_deliveries" ("company_id", "endpoint_id", "created_at", "id");
-- create "inbox_settings" table
CREATE TABLE "inbox_settings" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "settings" jsonb NOT NULL, PRIMARY KEY ("id"));
-- create index "inboxsettings_company_id" to table: "inbox_settings"
CREATE UNIQUE INDEX "inboxsettings_company_id" ON "inbox_settings" ("company_id");
-- create "notes" table
CREATE TABLE "notes" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "conversation_id" character varying NOT NULL, "author" character varying NOT NULL, "text" text NOT NULL, PRIMARY KEY ("id"));
-- create index "note_company_id_conversation_id_created_at" to table: "notes"
CREATE INDEX "note_company_id_conversation_id_created_at" ON "notes" ("company_id", "conversation_id", "created_at");
-- create "presences" table
CREATE TABLE "presences" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "person" character varying NOT NULL, "display_name" character varying NOT NULL DEFAULT '', "until" timestamptz NOT NULL, PRIMARY KEY ("id"));
-- create index "presence_company_id_person" to table: "presences"
CREATE UNIQUE INDEX "presence_company_id_person" ON "presences" ("company_id", "person");
-- the one backend of each Company becomes its endpoint that answers
INSERT INTO "endpoints" ("id", "company_id", "created_at", "updated_at", "version", "url", "enabled", "disable_reason", "attempt_timeout_ms", "deliver_late", "role") SELECT "id", "company_id", "created_at", "updated_at", "version", "url", "enabled", "disable_reason", "attempt_timeout_ms", "deliver_late", 'answers' FROM "backends";
DROP TABLE "backends";

-- +goose Down
CREATE TABLE "backends" ("id" character varying NOT NULL, "company_id" character varying NOT NULL, "created_at" timestamptz NOT NULL, "updated_at" timestamptz NOT NULL, "version" bigint NOT NULL DEFAULT 1, "url" character varying NOT NULL DEFAULT '', "enabled" boolean NOT NULL DEFAULT true, "disable_reason" character varying NOT NULL DEFAULT '', "attempt_timeout_ms" bigint NOT NULL DEFAULT 0, "deliver_late" boolean NOT NULL DEFAULT true, PRIMARY KEY ("id"));
CREATE UNIQUE INDEX "backend_company_id" ON "backends" ("company_id");
INSERT INTO "backends" ("id", "company_id", "created_at", "updated_at", "version", "url", "enabled", "disable_reason", "attempt_timeout_ms", "deliver_late") SELECT "id", "company_id", "created_at", "updated_at", "version", "url", "enabled", "disable_reason", "attempt_timeout_ms", "deliver_late" FROM "endpoints" WHERE role = 'answers';
ALTER TABLE "backends" ENABLE ROW LEVEL SECURITY;
ALTER TABLE "backends" FORCE ROW LEVEL SECURITY;
CREATE POLICY "company" ON "backends" USING (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on') WITH CHECK (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on');
ALTER TABLE "backends" ADD CONSTRAINT "backends_company" FOREIGN KEY ("company_id") REFERENCES "companies" ("id");
-- reverse: create index "presence_company_id_person" to table: "presences"
DROP INDEX "presence_company_id_person";
-- reverse: create "presences" table
DROP TABLE "presences";
-- reverse: create index "note_company_id_conversation_id_created_at" to table: "notes"
DROP INDEX "note_company_id_conversation_id_created_at";
-- reverse: create "notes" table
DROP TABLE "notes";
-- reverse: create index "inboxsettings_company_id" to table: "inbox_settings"
DROP INDEX "inboxsettings_company_id";
-- reverse: create "inbox_settings" table
DROP TABLE "inbox_settings";
-- reverse: create index "endpointdelivery_company_id_endpoint_id_created_at_id" to table: "endpoint_deliveries"
DROP INDEX "endpointdelivery_company_id_endpoint_id_created_at_id";
-- reverse: create index "endpointdelivery_company_id_created_at_id" to table: "endpoint_deliveries"
DROP INDEX "endpointdelivery_company_id_created_at_id";
-- reverse: create index "endpoint_delivery_queue" to table: "endpoint_deliveries"
DROP INDEX "endpoint_delivery_queue";
-- reverse: create index "endpoint_delivery_due" to table: "endpoint_deliveries"
DROP INDEX "endpoint_delivery_due";
-- reverse: create "endpoint_deliveries" table
DROP TABLE "endpoint_deliveries";
-- reverse: create index "endpoint_company_id_created_at_id" to table: "endpoints"
DROP INDEX "endpoint_company_id_created_at_id";
-- reverse: create index "endpoint_backend" to table: "endpoints"
DROP INDEX "endpoint_backend";
-- reverse: create "endpoints" table
DROP TABLE "endpoints";
-- reverse: create index "companyevent_company_id_created_at_id" to table: "company_events"
DROP INDEX "companyevent_company_id_created_at_id";
-- reverse: create index "company_event_unrouted" to table: "company_events"
DROP INDEX "company_event_unrouted";
-- reverse: create "company_events" table
DROP TABLE "company_events";
-- reverse: create index "attempt_created_at" to table: "attempts"
DROP INDEX "attempt_created_at";
-- reverse: create index "attempt_company_id_endpoint_id_created_at" to table: "attempts"
DROP INDEX "attempt_company_id_endpoint_id_created_at";
-- reverse: create index "attempt_company_id_delivery_id_created_at" to table: "attempts"
DROP INDEX "attempt_company_id_delivery_id_created_at";
-- reverse: create "attempts" table
DROP TABLE "attempts";
-- reverse: modify "webhook_secrets" table
ALTER TABLE "webhook_secrets" DROP COLUMN "endpoint_id";
-- reverse: modify "sessions" table
ALTER TABLE "sessions" DROP COLUMN "extensions";
-- reverse: create index "delivery_company_id_created_at_id" to table: "deliveries"
DROP INDEX "delivery_company_id_created_at_id";
-- reverse: create index "delivery_company_id_conversation_id_sequence_round" to table: "deliveries"
DROP INDEX "delivery_company_id_conversation_id_sequence_round";
-- reverse: modify "deliveries" table
ALTER TABLE "deliveries" DROP COLUMN "round";
-- reverse: drop index "delivery_company_id_conversation_id_sequence" from table: "deliveries"
CREATE UNIQUE INDEX "delivery_company_id_conversation_id_sequence" ON "deliveries" ("company_id", "conversation_id", "sequence");
-- reverse: create index "conversation_company_id_waiting_since_id" to table: "conversations"
DROP INDEX "conversation_company_id_waiting_since_id";
-- reverse: create index "conversation_company_id_person" to table: "conversations"
DROP INDEX "conversation_company_id_person";
-- reverse: modify "conversations" table
ALTER TABLE "conversations" DROP COLUMN "had_handoff", DROP COLUMN "handoff_reason", DROP COLUMN "waiting_since", DROP COLUMN "assignee", DROP COLUMN "person", DROP COLUMN "child_id", DROP COLUMN "parent_id";
