// Package accounts says in one table which accounts of a cluster follow which kind of object, how the kind is read,
// which of its updates change nothing, and which account gets an event first.
//
//	API server ─► informer ─► the accounts of the row, from left to right ─► the handler behind them
//	Reservations ─► reserve pods ─► the accounts of the row "Pod" ─► the handler behind them
//
// The scheduler, the manager, the descheduler, simulate, replay and the CLI use the same table, each with the accounts
// that it has. No other package adds the handler of an account to an informer, or puts an object into an account:
// internal/archtest checks it.
//
// The events of one kind reach all accounts in one order, those of two kinds in any order: what accounts have depends
// on the last state of each object alone.
package accounts
