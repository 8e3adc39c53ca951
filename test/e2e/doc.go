// Package e2e tests what somebody sees who runs the binary for the first time:
// `poppyfield dev`, the example it prints, the agent's commands, the admin API by REST
// and gRPC; and what nobody may see, in logs, traces and the database.
package e2e
