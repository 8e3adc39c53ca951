-- +goose Up
-- What an earlier migration says of row security holds for these tables too.
ALTER TABLE "usages" ENABLE ROW LEVEL SECURITY;
ALTER TABLE "usages" FORCE ROW LEVEL SECURITY;
CREATE POLICY "company" ON "usages" USING (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on') WITH CHECK (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on');
ALTER TABLE "usages" ADD CONSTRAINT "usages_company" FOREIGN KEY ("company_id") REFERENCES "companies" ("id");
ALTER TABLE "quota" ENABLE ROW LEVEL SECURITY;
ALTER TABLE "quota" FORCE ROW LEVEL SECURITY;
CREATE POLICY "company" ON "quota" USING (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on') WITH CHECK (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on');
ALTER TABLE "quota" ADD CONSTRAINT "quota_company" FOREIGN KEY ("company_id") REFERENCES "companies" ("id");

-- +goose Down
ALTER TABLE "quota" DROP CONSTRAINT "quota_company";
DROP POLICY "company" ON "quota";
ALTER TABLE "quota" NO FORCE ROW LEVEL SECURITY;
ALTER TABLE "quota" DISABLE ROW LEVEL SECURITY;
ALTER TABLE "usages" DROP CONSTRAINT "usages_company";
DROP POLICY "company" ON "usages";
ALTER TABLE "usages" NO FORCE ROW LEVEL SECURITY;
ALTER TABLE "usages" DISABLE ROW LEVEL SECURITY;
