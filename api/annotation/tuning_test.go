package annotation_test

import (
	"testing"

	"github.com/tenon-project/tenon/api/annotation"
)

func TestHowDeepCPUsMaySleep(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"enable": "0", "disable": "n/a", "max_latency:0": "n/a", "max_latency:1": "1",
		"max_latency:2147483646": "2147483646",
		// These are refused.
		"": "", "0": "", "max_latency:": "", "max_latency:-1": "", "max_latency:2147483647": "", "max_latency:10us": "",
		"max_latency:1.5": "", "off": "", "max_latency:99999999999999999999": "",
	} {
		got, _, err := annotation.ParseSleep(text)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q is %q (%v), want %q", text, got, err, want)
		}
		both, err := annotation.ReadTuning(map[string]string{
			annotation.SleepKey: text, annotation.InterruptsKey: "disable",
		})
		if both.Latency != want || both.Interrupts != annotation.InterruptsLeave || (err != nil) != (want == "") {
			t.Errorf("beside the other annotation %q is %+v (%v)", text, both, err)
		}
	}
}
