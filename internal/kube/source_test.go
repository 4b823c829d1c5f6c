package kube

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

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
			items: []string{"a", "b"},
		},
		"metadata last, and a field that is not read": {
			text:  `{"items":[{"name":"a","more":[1,{"x":"}"}]}],"other":{"y":[]},"metadata":{"resourceVersion":"7"}}`,
			items: []string{"a"},
		},
		"no items":                     {text: `{"metadata":{"resourceVersion":"7"},"items":[]}`},
		"items are null":               {text: `{"metadata":{"resourceVersion":"7"},"items":null}`},
		"a list that ends too early":   {text: `{"items":[{"name":"a"}`, failure: "EOF"},
		"an item that ends too early":  {text: `{"metadata":{},"items":[{"name":"a`, failure: "EOF"},
		"an object that is not a list": {text: `{"items":{"a":1}}`, failure: "items must be an array, begin with {"},
		"a text that is not an object": {text: `["a"]`, failure: "must have {, has ["},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var items []string
			var metadata metav1.ListMeta
			err := readList(json.NewDecoder(strings.NewReader(test.text)), &metadata, func(one *struct{ Name string }) {
				items = append(items, one.Name)
			})
			if test.failure != "" {
				if err == nil || !strings.Contains(err.Error(), test.failure) {
					t.Fatalf("got %v, want an error with %q", err, test.failure)
				}
				return
			}
			if err != nil || metadata.ResourceVersion != "7" || !slices.Equal(items, test.items) {
				t.Errorf("got %q of version %q, %v", items, metadata.ResourceVersion, err)
			}
		})
	}
}
