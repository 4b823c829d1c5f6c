package admission_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/admission"
)

func TestAPodThatWillHoldCPUsRequiresThePlugin(t *testing.T) {
	t.Parallel()
	const key, ours = annotation.RequiredPlugins, `["tenon-agent"]`
	tests := map[string]struct {
		options  []podOption
		want     map[string]string // annotations that are set
		refusals []string
	}{
		"LSE":                              {options: []podOption{class("LSE")}, want: map[string]string{key: ours}},
		"LSR in small letters":             {options: []podOption{class("lsr")}, want: map[string]string{key: ours}},
		"LS":                               {options: []podOption{class("LS")}},
		"a plain Guaranteed pod":           {},
		"a pod of someone who requires it": {options: []podOption{annot(key, "nonsense: [")}},
		"LSR of another band":              {options: []podOption{class("LSR"), band("koord-batch")}},
		"LSR without CPUs": {options: []podOption{
			class("LSR"), requests("memory", "1Gi"),
			limits("memory", "1Gi"),
		}},
		"it requires another plugin too": {
			options: []podOption{class("LSE"), annot(key, "- topology-aware\n")},
			want:    map[string]string{key: `["topology-aware","tenon-agent"]`},
		},
		"it requires ours already": {options: []podOption{class("LSE"), annot(key, `["tenon-agent","other"]`)}},
		"an empty list": {
			options: []podOption{class("LSE"), annot(key, "")},
			want:    map[string]string{key: ours},
		},
		"the key of the pod": {
			options: []podOption{class("LSE"), annot(key+"/pod", `["other"]`)},
			want:    map[string]string{key + "/pod": `["other","tenon-agent"]`},
		},
		"a container's key speaks for it alone": {
			options: []podOption{class("LSE"), annot(key+"/container.c", `["other"]`)},
			want:    map[string]string{key: ours, key + "/container.c": `["other","tenon-agent"]`},
		},
		"a name instead of a list": {options: []podOption{class("LSE"), annot(key, "tenon-agent")}, refusals: []string{
			`metadata.annotations[required-plugins.noderesource.dev]: Invalid value "tenon-agent": must be a list of ` +
				`NRI plugin names, such as ["tenon-agent"]`,
		}},
		"no YAML": {options: []podOption{class("LSR"), annot(key+"/pod", "[a")}, refusals: []string{
			`metadata.annotations[required-plugins.noderesource.dev/pod]: Invalid value "[a": must be a list of NRI ` +
				`plugin names, such as ["tenon-agent"]`,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := newPod(tt.options...)
			fenced, answer := admission.Fence(pod, nil)
			check(t, answer, tt.refusals, nil)
			got := maps.Clone(fenced.Annotations)
			maps.DeleteFunc(got, func(key, value string) bool { return pod.Annotations[key] == value })
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("annotations set (-want +got):\n%s", diff)
			}
			if !answer.Allowed() {
				return
			}
			if again, _ := admission.Fence(fenced, nil); !cmp.Equal(fenced, again) {
				t.Errorf("asked a second time it sets %v", again.Annotations)
			}
		})
	}
}
