// Package seed gives the property tests of a test binary the same random cases in every run:
//
//	import _ "github.com/tenon-project/tenon/internal/testkit/seed"
//
// A change is then tested by itself and not by the draw of the day. The flag -rapid.seed and the variable RAPID_SEED
// select other cases, 0 a random seed; `make soak` draws fresh seeds and prints them.
package seed
