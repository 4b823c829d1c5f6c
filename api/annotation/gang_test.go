package annotation_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
)

const gather = `{"gatherStrategy":[{"layer":`

func TestParseGangAnnotations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		parse    parser
		text     string
		want     any
		warnings []Warning
	}{
		"a name as labels have it":  {parse: codec(ParseGangName), text: "Job_1", want: "Job_1"},
		"a name as objects have it": {parse: codec(ParseGangName), text: "job-1.team", want: "job-1.team"},
		"the smallest gang":         {parse: codec(ParseMembers), text: "1", want: 1},
		"the largest gang":          {parse: codec(ParseMembers), text: "2147483647", want: 2147483647},
		"zeros in front":            {parse: codec(ParseMembers), text: "007", want: 7},
		"a strict gang":             {parse: codec(ParseGangMode), text: "Strict", want: GangStrict},
		"a gang that is not":        {parse: codec(ParseGangMode), text: "NonStrict", want: GangNonStrict},
		"members that wait and run": {
			parse: codec(ParseMatchPolicy), text: "waiting-and-running", want: GangWaitingAndRunning,
		},
		"members that wait": {
			parse: codec(ParseMatchPolicy), text: "only-waiting", want: GangOnlyWaiting,
		},
		"a waiting time in seconds":          {parse: codec(ParseWaitingTime), text: "600s", want: 10 * time.Minute},
		"a waiting time of days":             {parse: codec(ParseWaitingTime), text: "72h", want: 72 * time.Hour},
		"a waiting time of 0 is the default": {parse: codec(ParseWaitingTime), text: "0s", want: time.Duration(0)},
		"a waiting time below 0 is, too":     {parse: codec(ParseWaitingTime), text: "-5m", want: time.Duration(0)},
		"a list without gangs says nothing":  {parse: codec(ParseGangGroups), text: `[]`, want: Names{}},
		"null says nothing":                  {parse: codec(ParseGangGroups), text: `null`, want: Names{}},
		"gangs of several namespaces": {
			parse: codec(ParseGangGroups), text: `["a/b","c/D_e"]`, want: Names{"a/b", "c/D_e"},
		},
		"as many gangs as a group may have": {parse: codec(ParseGangGroups), text: gangs(1000), want: manyGangs(1000)},
		"domains of the network": {
			parse: codec(ParseNetworkTopologySpec),
			text: gather + `"Block","strategy":"MustGather","podCountMultiple":1},` +
				`{"layer":"Spine","strategy":"PreferGather","podCountMultiple":1000}]}`,
			want: NetworkTopologySpec{[]GatherRule{{"Block", MustGather, 1}, {"Spine", PreferGather, 1000}}},
		},
		"any domains": {parse: codec(ParseNetworkTopologySpec), text: `{}`, want: NetworkTopologySpec{}},
		"a strategy in small letters, and a field that is not known": {
			parse: codec(ParseNetworkTopologySpec), text: gather + `"Block","strategy":"mustGather","pods":4}]}`,
			want: NetworkTopologySpec{[]GatherRule{{"Block", MustGather, 0}}},
			warnings: []Warning{
				{"gatherStrategy[0].pods", "unknown field"},
				{
					"gatherStrategy.0.strategy",
					`"mustGather" is read as "MustGather": values are case-sensitive on output`,
				},
			},
		},
		"a policy in capitals, with a warning": {
			parse: codec(ParseMatchPolicy), text: "Once-Satisfied", want: GangOnceSatisfied,
			warnings: []Warning{{
				"", `"Once-Satisfied" is read as "once-satisfied": values are case-sensitive on output`,
			}},
		},
		"a gang twice, with a warning": {
			parse: codec(ParseGangGroups), text: `["a/b","c/d","a/b"]`, want: Names{"a/b", "c/d"},
			warnings: []Warning{{"[2]", `"a/b" is listed twice`}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := test.parse(test.text)
			testkit.Check(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("parse %.99q (-want +got):\n%s", test.text, diff)
			}
			if diff := cmp.Diff(test.warnings, warnings); diff != "" {
				t.Errorf("warnings of %.99q (-want +got):\n%s", test.text, diff)
			}
		})
	}
}

func manyGangs(n int) Names {
	names := Names{}
	for i := range n {
		names = append(names, fmt.Sprintf("n/g%d", i))
	}
	return names
}

func gangs(n int) string { return manyGangs(n).String() }

func TestGangAnnotationsAreRefusedWithValueAndRule(t *testing.T) {
	t.Parallel()
	const members = "must be a whole number from 1 to 2147483647"
	const name = "must be up to 253 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
	const listed = "must be namespace/name of a gang; the name " + name
	const wait = "must be a Go duration of at most 290 years, such as 600s, 1h30m or 48h"
	const policies = "supported once-satisfied, only-waiting, waiting-and-running"
	long := strings.Repeat("x", 1<<18)
	for title, test := range map[string]struct {
		parse parser
		text  string
		want  string
	}{
		"no members":                {codec(ParseMembers), "0", `byte 0: Invalid value "0": ` + members},
		"fewer than none":           {codec(ParseMembers), "-1", `byte 0: Invalid value "-1": ` + members},
		"a sign":                    {codec(ParseMembers), "+1", `byte 0: Invalid value "+1": ` + members},
		"half a member":             {codec(ParseMembers), "1.5", `byte 0: Invalid value "1.5": ` + members},
		"a word for a number":       {codec(ParseMembers), "many", `byte 0: Invalid value "many": ` + members},
		"no text for a number":      {codec(ParseMembers), "", `byte 0: Invalid value "": ` + members},
		"more than there can be":    {codec(ParseMembers), "2147483648", `byte 0: Invalid value "2147483648": ` + members},
		"a number with a space":     {codec(ParseMembers), " 1", `byte 0: Invalid value " 1": ` + members},
		"a name with a comma":       {codec(ParseGangName), "a,b", `byte 0: Invalid value "a,b": ` + name},
		"a name with a namespace":   {codec(ParseGangName), "n/a", `byte 0: Invalid value "n/a": ` + name},
		"a name that ends in a dot": {codec(ParseGangName), "a.", `byte 0: Invalid value "a.": ` + name},
		"a name with a line end":    {codec(ParseGangName), "a\n", `byte 0: Invalid value "a\n": ` + name},
		"a long name":               {codec(ParseGangName), long, `byte 0: Invalid value "` + long[:64] + `": ` + name},
		"an unknown mode": {
			codec(ParseGangMode), "strictly", `byte 0: Unsupported value "strictly": supported Strict, NonStrict`,
		},
		"a long mode": {
			codec(ParseGangMode), long, `byte 0: Unsupported value "` + long[:64] + `": supported Strict, NonStrict`,
		},
		"an unknown policy":    {codec(ParseMatchPolicy), "once", `byte 0: Unsupported value "once": ` + policies},
		"seconds without unit": {codec(ParseWaitingTime), "600", `byte 0: Invalid value "600": ` + wait},
		"days":                 {codec(ParseWaitingTime), "2d", `byte 0: Invalid value "2d": ` + wait},
		"300 years":            {codec(ParseWaitingTime), "2628000h", `byte 0: Invalid value "2628000h": ` + wait},
		"a list in YAML": {
			codec(ParseGangGroups), "- a/b", "byte 2: invalid character ' ' in numeric literal",
		},
		"one gang without list": {codec(ParseGangGroups), `"a/b"`, "byte 5: want a list, got string"},
		"a gang without namespace": {
			codec(ParseGangGroups), `["a/b","c"]`, `byte 0: [1]: Invalid value "c": ` + listed,
		},
		"a namespace that cannot be": {
			codec(ParseGangGroups), `["N/a"]`, `byte 0: [0]: Invalid value "N/a": ` + listed,
		},
		"a gang that cannot be": {
			codec(ParseGangGroups), `["n/a,b/c"]`,
			`byte 0: [0]: Invalid value "n/a,b/c": ` + listed,
		},
		"null for a gang": {
			codec(ParseGangGroups), `[null]`, `byte 0: [0]: Invalid value "": ` + listed,
		},
		"a layer without name": {
			codec(ParseNetworkTopologySpec), `{"gatherStrategy":[{"strategy":"MustGather"}]}`,
			"byte 18: gatherStrategy.0.layer: " +
				"must name a layer of the ClusterNetworkTopology, with up to 253 letters",
		},
		"a layer with a long name": {
			codec(ParseNetworkTopologySpec), gather + `"` + long[:254] + `","strategy":"MustGather"}]}`,
			"byte 18: gatherStrategy.0.layer: must name a layer of the ClusterNetworkTopology, with up to 253 letters",
		},
		"a layer twice": {
			codec(ParseNetworkTopologySpec), gather + `"a","strategy":"MustGather"},{"layer":"a","strategy":` +
				`"PreferGather"}]}`, `byte 18: gatherStrategy.1.layer: layer "a" is listed twice`,
		},
		"no strategy": {
			codec(ParseNetworkTopologySpec), gather + `"a"}]}`,
			"byte 18: gatherStrategy.0.strategy: must be one of MustGather, PreferGather",
		},
		"an unknown strategy": {
			codec(ParseNetworkTopologySpec), gather + `"a","strategy":"Gather"}]}`,
			`byte 18: gatherStrategy.0.strategy: Unsupported value "Gather": supported MustGather, PreferGather`,
		},
		"a negative multiple": {
			codec(ParseNetworkTopologySpec), gather + `"a","strategy":"MustGather","podCountMultiple":-1}]}`,
			"byte 18: gatherStrategy.0.podCountMultiple: must be from 0 to 1000",
		},
		"a large multiple": {
			codec(ParseNetworkTopologySpec), gather + `"a","strategy":"MustGather","podCountMultiple":1001}]}`,
			"byte 18: gatherStrategy.0.podCountMultiple: must be from 0 to 1000",
		},
		"two multiples": {
			codec(ParseNetworkTopologySpec), gather + `"a","strategy":"MustGather","podCountMultiple":2},` +
				`{"layer":"b","strategy":"MustGather","podCountMultiple":4}]}`,
			"byte 18: gatherStrategy.1.podCountMultiple: only one rule may say it",
		},
		"nine layers": {
			codec(ParseNetworkTopologySpec), `{"gatherStrategy":[{},{},{},{},{},{},{},{},{}]}`,
			"byte 18: gatherStrategy: lists 9 layers: supported up to 8",
		},
		"layers in words": {
			codec(ParseNetworkTopologySpec), `{"gatherStrategy":"Block"}`,
			"byte 25: gatherStrategy: want a list, got string",
		},
		"too many gangs": {codec(ParseGangGroups), gangs(1001), "byte 0: lists 1001 gangs: supported up to 1000"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			_, _, err := test.parse(test.text)
			var e *Error
			if !errors.As(err, &e) || e.Error() != test.want {
				t.Errorf("parse %.99q: got %v, want %s", test.text, err, test.want)
			}
		})
	}
}

// The largest annotation that the API server accepts holds 256 KiB.
func TestTheLargestListsAreReadInLinearTime(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]string{
		"distinct": manyGangs(1 << 15), "equal": strings.Split(strings.Repeat("a/b ", 1<<15), " ")[:1<<15],
	} {
		text, err := json.Marshal(list)
		testkit.Check(t, err)
		start := time.Now()
		testkit.Check(t, json.Unmarshal(text, new([]string)))
		decoded := time.Since(start)
		start = time.Now()
		_, _, err = ParseGangGroups(string(text))
		if took := time.Since(start); took > 100*decoded || (name == "distinct") != (err != nil) {
			t.Errorf("%s: %v after %s, a plain decoder takes %s", name, err, took, decoded)
		}
	}
}
