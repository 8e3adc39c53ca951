-- +goose Up
-- create index "delivery_live" to table: "deliveries"
CREATE INDEX `delivery_live` ON `deliveries` (`company_id`, `conversation_id`, `sequence`) WHERE (state = 'pending' OR (expects_reply AND agent_outcome = ''));

-- +goose Down
-- reverse: create index "delivery_live" to table: "deliveries"
DROP INDEX `delivery_live`;
