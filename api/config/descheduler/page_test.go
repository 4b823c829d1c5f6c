package descheduler_test

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/testkit/page"
)

func TestTheFilesOfTheGuidesAreAccepted(t *testing.T) {
	t.Parallel()
	files := 0
	for _, block := range page.Blocks(t) {
		for _, text := range block.Documents() {
			if block.Language != "yaml" || !strings.HasPrefix(text, "apiVersion: descheduler/") {
				continue
			}
			files++
			if s, err := descheduler.Read(block.File, []byte(text)); err != nil || len(s.Written.Warnings) > 0 {
				t.Errorf("%s: %v, warnings %q", block, err, s.Written.Warnings)
			}
		}
	}
	if files < 2 {
		t.Errorf("%d files of the descheduler on the pages", files)
	}
}
