package annotation_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	. "github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
)

func FuzzAmounts(f *testing.F) {
	roundTrip(f, ParseAmounts, `{"cpu":"60","memory":"60Gi"}`, `{"cpu":100,"memory":"200Gi"}`,
		`{"cpu":"1500m","nvidia.com/gpu":"8","kubernetes.io/batch-cpu":"12000"}`)
}

func FuzzNamespaces(f *testing.F) { roundTrip(f, ParseNamespaces, `["team-a","team-b"]`, `["a","a"]`) }

func FuzzResourceKeys(f *testing.F) {
	roundTrip(f, ParseResourceKeys, `["cpu","memory"]`, `["nvidia.com/gpu"]`)
}

func FuzzParseBool(f *testing.F) {
	f.Add("true")
	f.Add("yes")
	f.Fuzz(func(t *testing.T, text string) {
		value, ok := ParseBool(text)
		if want := map[string]bool{"true": true, "false": true}[text]; ok != want || value != (text == "true") {
			t.Errorf("ParseBool(%q) = %v, %v", text, value, ok)
		}
	})
}

func TestParseQuotaAnnotations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		parse    parser
		text     string
		want     any
		written  string
		warnings []Warning
	}{
		"a weight as seed 003 writes it": {
			parse: codec(ParseAmounts), text: `{"cpu":"60","memory":"60Gi"}`,
			want:    Amounts{"cpu": resource.MustParse("60"), "memory": resource.MustParse("60Gi")},
			written: `{"cpu":"60","memory":"60Gi"}`,
		},
		"a total with numbers": {
			parse: codec(ParseAmounts), text: `{"memory":1073741824,"cpu":100}`,
			want:    Amounts{"cpu": resource.MustParse("100"), "memory": resource.MustParse("1073741824")},
			written: `{"cpu":"100","memory":"1073741824"}`,
		},
		"a weight of nothing is not the default": {
			parse: codec(ParseAmounts), text: `{"cpu":0}`, want: Amounts{"cpu": resource.MustParse("0")},
			written: `{"cpu":"0"}`,
		},
		"null for no amounts": {parse: codec(ParseAmounts), text: `null`, want: Amounts(nil), written: `{}`},
		"namespaces": {
			parse: codec(ParseNamespaces), text: `["team-a","team-b"]`, want: Names{"team-a", "team-b"},
			written: `["team-a","team-b"]`,
		},
		"a namespace twice": {
			parse: codec(ParseNamespaces), text: `["a","b","a"]`, want: Names{"a", "b"}, written: `["a","b"]`,
			warnings: []Warning{{"[2]", `"a" is listed twice`}},
		},
		"null for no names": {parse: codec(ParseNamespaces), text: `null`, want: Names{}, written: `[]`},
		"resources with a domain": {
			parse: codec(ParseResourceKeys), text: `["cpu","nvidia.com/gpu"]`, want: Names{"cpu", "nvidia.com/gpu"},
			written: `["cpu","nvidia.com/gpu"]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := test.parse(test.text)
			testkit.Check(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("parse %s (-want +got):\n%s", test.text, diff)
			}
			if diff := cmp.Diff(test.warnings, warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if got := Encode(got); got != test.written {
				t.Errorf("written as %s, want %s", got, test.written)
			}
		})
	}
}

func TestQuotaAnnotationsAreRefusedWithFieldAndRule(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		parse parser
		text  string
		field string
		want  string // of the text
	}{
		"a negative weight":           {codec(ParseAmounts), `{"cpu":"-1"}`, "cpu", "must not be negative"},
		"a negative weight of a GPU":  {codec(ParseAmounts), `{"b.c/d":-1}`, "b.c/d", "must not be negative"},
		"the first of several faults": {codec(ParseAmounts), `{"b":-1,"a":-1}`, "a", "must not be negative"},
		"a weight that is a word":     {codec(ParseAmounts), `{"cpu":"many"}`, "cpu", "quantities must match"},
		"a list of weights":           {codec(ParseAmounts), `["cpu"]`, "", "want an object, got array"},
		"a weight that is cut off":    {codec(ParseAmounts), `{"cpu":"60"`, "", "unexpected end of JSON input"},
		"an amount without end":       {codec(ParseAmounts), `{"cpu":"1e-9999999"}`, "cpu", "is out of range"},
		"a namespace in capitals":     {codec(ParseNamespaces), `["a","Team"]`, "[1]", `"Team": a lowercase RFC 1123`},
		"an empty namespace":          {codec(ParseNamespaces), `[""]`, "[0]", `Invalid value ""`},
		"one namespace without list":  {codec(ParseNamespaces), `"team-a"`, "", "want a list, got string"},
		"namespaces that are numbers": {codec(ParseNamespaces), `[1]`, "", "want a string, got number"},
		"a resource with a space":     {codec(ParseResourceKeys), `["gpu memory"]`, "[0]", `"gpu memory": name part`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := test.parse(test.text)
			var e *Error
			if !errors.As(err, &e) || e.Field != test.field || !strings.Contains(e.Text, test.want) {
				t.Errorf("parse %s: %#v, want field %q and %q in the text", test.text, err, test.field, test.want)
			}
		})
	}
}

func TestQuantitiesThatTakeSecondsAreRefused(t *testing.T) {
	t.Parallel()
	for text, slow := range map[string]bool{
		"E3320368592234775807": true, "1e-99999999": true, "-9E+9999999": true, "1e100": true,
		strings.Repeat("9", 65): true,
		"1e-99":                 false, "500m": false, "1Gi": false, "-3": false, "12e6": false, "E": false, "0": false,
	} {
		got, err := ParseQuantity(text)
		if slow != (err != nil && strings.Contains(err.Error(), "is out of range")) {
			t.Errorf("%s: error %v, want one: %v", text, err, slow)
		}
		if slow {
			continue
		}
		want, wrong := resource.ParseQuantity(text) //nolint:forbidigo // what is compared with
		if (wrong != nil) != (err != nil) || !got.Equal(want) {
			t.Errorf("%s is %s, %v; want %s, %v", text, got.String(), err, want.String(), wrong)
		}
	}
}
