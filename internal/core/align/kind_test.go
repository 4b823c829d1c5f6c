package align_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/why"
)

func TestPageSize(t *testing.T) {
	t.Parallel()
	for kind, want := range map[why.Resource]int64{
		"memory": 1, "hugepages-2Mi": 2 << 20, "hugepages-1Gi": 1 << 30, "hugepages-64Ki": 64 << 10,
		"hugepages-1Ti":  1 << 40,
		"hugepages-4096": 4096, "hugepages-": 1, "hugepages-x": 1, "hugepages-0Mi": 1, "hugepages-99999999999999Ti": 1,
		"hugepages--2Mi": 1,
	} {
		if got, ok := align.PageSize(kind); got != want || !ok {
			t.Errorf("%s: got %d, want %d", kind, got, want)
		}
	}
	if got, ok := align.PageSize(why.CPU); got != 0 || ok {
		t.Errorf("cpu has no rows: got %d, %t", got, ok)
	}
}
