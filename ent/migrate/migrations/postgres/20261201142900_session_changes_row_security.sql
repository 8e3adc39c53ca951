-- +goose Up
-- What an earlier migration says of row security holds for this table too.
ALTER TABLE "session_changes" ENABLE ROW LEVEL SECURITY;
ALTER TABLE "session_changes" FORCE ROW LEVEL SECURITY;
CREATE POLICY "company" ON "session_changes" USING (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on') WITH CHECK (company_id = nullif(current_setting('app.company', true), '') OR current_setting('app.system', true) = 'on');
ALTER TABLE "session_changes" ADD CONSTRAINT "session_changes_company" FOREIGN KEY ("company_id") REFERENCES "companies" ("id");

-- +goose Down
ALTER TABLE "session_changes" DROP CONSTRAINT "session_changes_company";
DROP POLICY "company" ON "session_changes";
ALTER TABLE "session_changes" NO FORCE ROW LEVEL SECURITY;
ALTER TABLE "session_changes" DISABLE ROW LEVEL SECURITY;
