package db

import (
	"database/sql/driver"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows are the rows of a question that was sent together with other statements. They
// are all there: who reads them does not keep the connection busy.
type rows struct {
	columns []string
	values  [][]driver.Value
}

// Columns implements driver.Rows.
func (r *rows) Columns() []string { return r.columns }

// Close implements driver.Rows.
func (r *rows) Close() error { return nil }

// Next implements driver.Rows.
func (r *rows) Next(into []driver.Value) error {
	if len(r.values) == 0 {
		return io.EOF
	}
	copy(into, r.values[0])
	r.values = r.values[1:]
	return nil
}

// receive reads past what came of the statements before, and then what came of the one
// that somebody waits for, where there is one.
func receive(results pgx.BatchResults, before int, wanted bool, types *pgtype.Map) (pgconn.CommandTag, *rows, error) {
	for range before {
		if _, err := results.Exec(); err != nil {
			return pgconn.CommandTag{}, nil, err
		}
	}
	if !wanted {
		return pgconn.CommandTag{}, nil, nil
	}
	from, err := results.Query()
	if err != nil {
		return pgconn.CommandTag{}, nil, err
	}
	defer from.Close()
	fields := from.FieldDescriptions()
	out := &rows{columns: make([]string, len(fields))}
	for i, f := range fields {
		out.columns[i] = f.Name
	}
	for from.Next() {
		row := make([]driver.Value, len(fields))
		for i, raw := range from.RawValues() {
			if raw == nil {
				continue
			}
			if row[i], err = cell(types, fields[i], raw); err != nil {
				return pgconn.CommandTag{}, nil, fmt.Errorf("column %s: %w", fields[i].Name, err)
			}
		}
		out.values = append(out.values, row)
	}
	from.Close()
	return from.CommandTag(), out, from.Err()
}

// cell is a column's value as database/sql wants it, and no part of raw.
func cell(types *pgtype.Map, f pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	switch f.DataTypeOID {
	case pgtype.BoolOID:
		return scan[bool](types, f, raw)
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return scan[int64](types, f, raw)
	case pgtype.Float4OID, pgtype.Float8OID:
		return scan[float64](types, f, raw)
	case pgtype.DateOID, pgtype.TimestampOID, pgtype.TimestamptzOID:
		return scan[time.Time](types, f, raw)
	case pgtype.ByteaOID, pgtype.JSONOID, pgtype.JSONBOID:
		return scan[[]byte](types, f, raw)
	}
	return scan[string](types, f, raw)
}

func scan[T any](types *pgtype.Map, f pgconn.FieldDescription, raw []byte) (driver.Value, error) {
	var v T
	err := types.Scan(f.DataTypeOID, f.Format, raw, &v)
	return v, err
}
