-- +goose Up
-- What an earlier migration says of row security holds for this table too.
ALTER TABLE "browser_cookies" ENABLE ROW LEVEL SECURITY;
ALTER TABLE "browser_cookies" FORCE ROW LEVEL SECURITY;
CREATE POLICY "company" ON "browser_cookies" USING (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on') WITH CHECK (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on');
ALTER TABLE "browser_cookies" ADD CONSTRAINT "browser_cookies_company" FOREIGN KEY ("company_id") REFERENCES "companies" ("id");
ALTER TABLE "browser_cookies" ADD CONSTRAINT "browser_cookies_sessions" FOREIGN KEY ("company_id", "session_id") REFERENCES "sessions" ("company_id", "id");

-- +goose Down
ALTER TABLE "browser_cookies" DROP CONSTRAINT "browser_cookies_sessions";
ALTER TABLE "browser_cookies" DROP CONSTRAINT "browser_cookies_company";
DROP POLICY "company" ON "browser_cookies";
ALTER TABLE "browser_cookies" NO FORCE ROW LEVEL SECURITY;
ALTER TABLE "browser_cookies" DISABLE ROW LEVEL SECURITY;
