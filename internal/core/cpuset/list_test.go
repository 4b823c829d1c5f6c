package cpuset_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ list, want, err string }{
		"nothing":                              {list: "", want: ""},
		"one id":                               {list: "7", want: "7"},
		"ids and ranges":                       {list: "0-3,8,10-11", want: "0-3,8,10-11"},
		"the newline of a sysfs file":          {list: "0-3\n", want: "0-3"},
		"only the newline of an empty file":    {list: "\n", want: ""},
		"the NUL that cgroup files may end in": {list: "0-3\x00\n", want: "0-3"},
		"spaces around items and ids":          {list: " 1 , 3 - 4 ", want: "1,3-4"},
		"any order":                            {list: "8,0-1", want: "0-1,8"},
		"repetition and overlap":               {list: "1-3,2-5,5", want: "1-5"},
		"neighbours become a range":            {list: "1,2,3", want: "1-3"},
		"a range of one":                       {list: "4-4", want: "4"},
		"leading zeros":                        {list: "007", want: "7"},
		"the largest id":                       {list: "1023", want: "1023"},
		"a negative id": {
			list: "-1", err: `cpu list item "-1": want an id like 3 or a range like 0-3`,
		},
		"a range that runs backwards": {list: "3-1", err: `cpu list item "3-1": the end is below the start`},
		"an open range": {
			list: "3-", err: `cpu list item "3-": want an id like 3 or a range like 0-3`,
		},
		"two dashes": {
			list: "1-2-3", err: `cpu list item "1-2-3": want an id like 3 or a range like 0-3`,
		},
		"a comma at the end": {list: "1,", err: `cpu list item "": want an id like 3 or a range like 0-3`},
		"only a comma":       {list: ",", err: `cpu list item "": want an id like 3 or a range like 0-3`},
		"a word": {
			list: "all", err: `cpu list item "all": want an id like 3 or a range like 0-3`,
		},
		"a mask": {
			list: "0xff", err: `cpu list item "0xff": want an id like 3 or a range like 0-3`,
		},
		"a stride": {
			list: "0-31:2/4", err: `cpu list item "0-31:2/4": want an id like 3 or a range like 0-3`,
		},
		"digits of another script": {list: "٣", err: `cpu list item "٣": want an id like 3 or a range like 0-3`},
		"an id above the largest": {
			list: "1024", err: "cpu list: id 1024 is above the largest supported id 1023",
		},
		"an id above any kernel's": {list: "65536", err: `cpu list item "65536": ids must be below 65536`},
		"a number that does not fit": {
			list: "99999999999999999999", err: `cpu list item "99999999999999999999": ids must be below 65536`,
		},
		"ranges that would fill the memory": {
			list: strings.Repeat("0-65535,", 6) + "1", err: "cpu list names more than 262144 ids",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := cpuset.Parse(tt.list)
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("Parse(%q) = %s, %v; want the error %q", tt.list, got, err, tt.err)
				}
				return
			}
			if err != nil || got.String() != tt.want {
				t.Errorf("Parse(%q) = %q, %v; want %q", tt.list, got, err, tt.want)
			}
		})
	}
}

func TestMustParsePanicsOnAMalformedList(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("did not panic")
		}
	}()
	cpuset.MustParse("x")
}

func TestIDsAboveTheLargestCPU(t *testing.T) {
	t.Parallel()
	ids, err := cpuset.ParseIDs("5000-5002,65535")
	if err != nil || !slices.Equal(ids, []int{5000, 5001, 5002, 65535}) {
		t.Errorf("ParseIDs = %v, %v", ids, err)
	}
	if got := cpuset.FormatIDs(ids); got != "5000-5002,65535" {
		t.Errorf("FormatIDs = %q", got)
	}
}

func TestListsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawModel(t, "set").set()
		if got, err := cpuset.Parse(s.String()); err != nil || got != s {
			t.Fatalf("Parse(%q) = %s, %v", s, got, err)
		}
	})
}

// FuzzParse checks that no text panics, and that what a text means survives being written and read again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "0", "0-3,8,10-11", "1023", "3-1", "0-4294967295", " 1 , 2 \n", "\x00", "1,,2",
		"-", "0-0,0",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		s, err := cpuset.Parse(list)
		if err != nil {
			if !s.IsEmpty() {
				t.Fatalf("Parse(%q) failed with %v and gave %s", list, err, s)
			}
			return
		}
		text := s.String()
		again, err := cpuset.Parse(text)
		if err != nil || again != s {
			t.Fatalf("Parse(%q) = %s, read again from %q: %s, %v", list, s, text, again, err)
		}
		if again.String() != text {
			t.Fatalf("%q is written again as %q", text, again)
		}
	})
}

// FuzzSet writes any set and reads it back.
func FuzzSet(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1, 255, 3})
	f.Fuzz(func(t *testing.T, ids []byte) {
		var s cpuset.Set
		for i := 0; i+1 < len(ids); i += 2 {
			s.Add((int(ids[i])<<8 | int(ids[i+1])) % cpuset.MaxCPUs)
		}
		if got, err := cpuset.Parse(s.String()); err != nil || got != s {
			t.Fatalf("Parse(%q) = %s, %v", s, got, err)
		}
	})
}
