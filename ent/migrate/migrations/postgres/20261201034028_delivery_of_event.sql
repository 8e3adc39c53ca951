-- +goose Up
-- create index "endpoint_delivery_event" to table: "endpoint_deliveries"
CREATE INDEX "endpoint_delivery_event" ON "endpoint_deliveries" ("company_id", "endpoint_id", "event_id");

-- +goose Down
-- reverse: create index "endpoint_delivery_event" to table: "endpoint_deliveries"
DROP INDEX "endpoint_delivery_event";
