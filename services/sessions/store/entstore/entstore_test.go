package entstore_test

import (
	"testing"

	"github.com/poppyfield/poppyfield/internal/platform/db"
	"github.com/poppyfield/poppyfield/internal/platform/db/dbtest"
	"github.com/poppyfield/poppyfield/internal/tenancy"
	"github.com/poppyfield/poppyfield/services/sessions/store/entstore"
	"github.com/poppyfield/poppyfield/services/sessions/store/storetest"
)

func TestStore(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		storetest.Run(t, entstore.New(d, nil), func() tenancy.Scope { return dbtest.Company(t, d) })
	})
}
