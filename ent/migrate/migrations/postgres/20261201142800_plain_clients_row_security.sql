-- +goose Up
-- What an earlier migration says of row security holds for this table too.
ALTER TABLE "registered_clients" ENABLE ROW LEVEL SECURITY;
ALTER TABLE "registered_clients" FORCE ROW LEVEL SECURITY;
CREATE POLICY "company" ON "registered_clients" USING (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on') WITH CHECK (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on');
ALTER TABLE "registered_clients" ADD CONSTRAINT "registered_clients_company" FOREIGN KEY ("company_id") REFERENCES "companies" ("id");

-- +goose Down
ALTER TABLE "registered_clients" DROP CONSTRAINT "registered_clients_company";
DROP POLICY "company" ON "registered_clients";
ALTER TABLE "registered_clients" NO FORCE ROW LEVEL SECURITY;
ALTER TABLE "registered_clients" DISABLE ROW LEVEL SECURITY;
