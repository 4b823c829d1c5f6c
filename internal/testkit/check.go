package testkit

// Check fails the test at once if there is an error. tb is a testing.TB or a *rapid.T.
func Check(tb interface {
	Helper()
	Fatal(args ...any)
}, err error,
) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
