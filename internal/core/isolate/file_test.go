package isolate_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/isolate"
)

func TestWhatBecomesOfAFile(t *testing.T) {
	t.Parallel()
	// recorded is a file that had 0-3, and that an agent set to 0-1; the chip took 0.
	recorded := func(now, want string) isolate.File {
		return isolate.File{
			Now: now, Want: want, Recorded: true, Original: "0-3", Before: "0-2", Asked: "0-1", Written: "0",
		}
	}
	plain := func(now, want string) isolate.File { return isolate.File{Now: now, Original: now, Want: want} }
	late := func(f isolate.File) isolate.File { f.IsLate = true; return f }
	left := func(f isolate.File) isolate.File { f.IsLeft = true; return f }
	for name, c := range map[string]struct {
		file    isolate.File
		foreign bool // as IsForeign says
		want    isolate.Step
	}{
		"nothing is to change":                         {plain("0-3", "0-3"), false, isolate.Keep},
		"a first write":                                {plain("0-3", "0-1"), false, isolate.Write},
		"the value of another program is the wanted":   {recorded("5", "5"), true, isolate.Keep},
		"another program's value":                      {recorded("5", "0-1"), true, isolate.Yield},
		"as asked":                                     {recorded("0-1", "0-1"), false, isolate.Keep},
		"as the chip chose":                            {recorded("0", "0-1"), false, isolate.Keep},
		"the original value is back":                   {recorded("0-3", "0-1"), false, isolate.Rewrite},
		"a crash before the write":                     {recorded("0-2", "0-1"), false, isolate.Write},
		"pods ask for another value":                   {recorded("0-1", "1"), false, isolate.Write},
		"pods ask for nothing":                         {recorded("0-1", "0-3"), false, isolate.Write},
		"restored":                                     {recorded("0-3", "0-3"), false, isolate.Keep},
		"a file that is left":                          {left(plain("0-3", "0-1")), false, isolate.Wait},
		"a file that is left and has the wanted value": {left(plain("0-1", "0-1")), false, isolate.Keep},
		"a late file that was written":                 {late(recorded("0-3", "0-1")), false, isolate.Wait},
		"a late file that shows it":                    {late(recorded("0-1", "0-1")), false, isolate.Keep},
		"a late file whose restoration has to be sent": {late(recorded("0-3", "0-3")), false, isolate.Write},
	} {
		f := c.file
		foreign := f.IsForeign()
		if foreign {
			f.Recorded = false
		}
		if got := f.Next(foreign); got != c.want || foreign != c.foreign {
			t.Errorf("%s: step %d, foreign %v; want %d, %v", name, got, foreign, c.want, c.foreign)
		}
	}
}
