// Package seed gives the property tests of a test binary the same random cases in every run:
//
//	import _ "github.com/tenon-project/tenon/internal/testkit/seed"
//
// A change is then tested by itself and not by the draw of the day. The flag -rapid.seed selects other cases, 0 a
// random seed; `make soak` draws fresh seeds and prints them. The variable RAPID_SEED selects nothing: a test binary
// reads it before Go records what a test depends on, so cached results of another seed would be printed.
package seed
