package kube

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReadListReadsEachItemByItself(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text, failure string
		items         []string
	}{
		"metadata first": {
			text:  `{"kind":"L","metadata":{"resourceVersion":"7"},"items":[{"name":"a"},{"name":"b"}]}`,
			items: []string{`{"name":"a"}`, `{"name":"b"}`},
		},
		"metadata last, and a field that is not read": {
			text: ` { "items" : [ {"more":[1,{"x":"}\\\"]"}]} ],"other":{"y":[]},` +
				`"metadata":{"resourceVersion":"7"} }`,
			items: []string{`{"more":[1,{"x":"}\\\"]"}]}`},
		},
		"items of all types": {
			text:  `{"items":["a",-1.5e3, true ,null,[[]],{}],"metadata":{"resourceVersion":"7"}}`,
			items: []string{`"a"`, `-1.5e3`, `true`, `null`, `[[]]`, `{}`},
		},
		"managed fields, which are left out": {
			text: `{"items":[{"metadata":{"managedFields":[{"f:a":{"}":1}}],"name":"a"}},` +
				`{"metadata":{"name":"managedFields","managedFields":[{}]}},{"spec":["managedFields",1]},` +
				`{"managedFields":[1]}],"metadata":{"resourceVersion":"7"}}`,
			items: []string{
				`{"metadata":{"managedFields":[],"name":"a"}}`,
				`{"metadata":{"name":"managedFields","managedFields":[]}}`,
				`{"spec":["managedFields",1]}`, `{"managedFields":[1]}`,
			},
		},
		"no items":                        {text: `{"metadata":{"resourceVersion":"7"},"items":[]}`},
		"items are null":                  {text: `{"metadata":{"resourceVersion":"7"},"items":null}`},
		"a list that ends too early":      {text: `{"items":[{"name":"a"}`, failure: "EOF"},
		"an item that ends too early":     {text: `{"metadata":{},"items":[{"name":"a`, failure: "EOF"},
		"an object that is not a list":    {text: `{"items":{"a":1}}`, failure: "must have [, has {"},
		"a text that is not an object":    {text: `["a"]`, failure: "must have {, has ["},
		"two items without a comma":       {text: `{"items":[1 2]}`, failure: "must have ,, has 2"},
		"a comma behind the last item":    {text: `{"items":[1,]}`, failure: "must have a value, has ]"},
		"metadata that are not an object": {text: `{"metadata":[}`, failure: "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, in := range []io.Reader{
				strings.NewReader(test.text), iotest.OneByteReader(strings.NewReader(test.text)),
			} {
				var items []string
				var metadata metav1.ListMeta
				err := readList(in, &metadata, func(item []byte) error {
					items = append(items, string(item))
					return nil
				})
				if test.failure != "" {
					if err == nil || !strings.Contains(err.Error(), test.failure) {
						t.Fatalf("got %v, want an error with %q", err, test.failure)
					}
				} else if err != nil || metadata.ResourceVersion != "7" || !slices.Equal(items, test.items) {
					t.Errorf("got %q of version %q, %v", items, metadata.ResourceVersion, err)
				}
			}
		})
	}
}

// FuzzReadList compares items with what encoding/json reads.
func FuzzReadList(f *testing.F) {
	for _, item := range []string{
		`{"metadata":{"name":"a","managedFields":[{"f":"\\\"]"}]},"spec":{"managedFields":1}}`, `[1,"managedFields"]`,
		`"\\"`, `{"a":{"managedFields" :[]}}`, `{"a":{"managedFields":{"managedFields":0},"b":[]}}`, "1e5", `{"a":[}]}`,
	} {
		f.Add([]byte(item))
	}
	f.Fuzz(func(t *testing.T, item []byte) {
		var want, got any
		if json.Unmarshal(item, &want) != nil {
			return
		}
		text := slices.Concat([]byte(`{"items":[0,`), item, []byte(`,`), item,
			[]byte(`],"metadata":{"resourceVersion":"7"}}`))
		n := 0
		var metadata metav1.ListMeta
		err := readList(iotest.HalfReader(bytes.NewReader(text)), &metadata, func(text []byte) error {
			if n++; n == 1 {
				return nil
			}
			got = nil // not a map that is added to
			return json.Unmarshal(text, &got)
		})
		if err != nil || n != 3 || metadata.ResourceVersion != "7" {
			t.Fatalf("%d items of version %q, %v", n, metadata.ResourceVersion, err)
		}
		if diff := cmp.Diff(unmanaged(want), unmanaged(got)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", item, diff)
		}
	})
}

// unmanaged empties the fields managedFields of the fields of an object.
func unmanaged(object any) any {
	fields, _ := object.(map[string]any)
	for _, value := range fields {
		if parts, ok := value.(map[string]any); ok && parts["managedFields"] != nil {
			parts["managedFields"] = []any{}
		}
	}
	return object
}
