package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func TestAClaimChargesTheDevicesOfEachClass(t *testing.T) {
	t.Parallel()
	one := func(name, class, more string) string {
		return "{name: " + name + ", exactly: {deviceClassName: " + class + more + "}}"
	}
	alternatives := "firstAvailable: [{name: x, deviceClassName: a, count: 2}, {name: y, deviceClassName: a, " +
		"count: 3}, {name: z, deviceClassName: b}]"
	for name, test := range map[string]struct {
		requests, results string
		want              amount.List
	}{
		"one device": {requests: "[" + one("r", "a", "") + "]", want: amount.List{"a": 1}},
		"a count":    {requests: "[" + one("r", "a", ", count: 3") + "]", want: amount.List{"a": 3}},
		"all devices": {
			requests: "[" + one("r", "a", ", allocationMode: All") + "]", want: amount.List{"a": 32},
		},
		"for administrators": {requests: "[" + one("r", "a", ", adminAccess: true") + "]"},
		"several requests": {
			requests: "[" + one("r", "a", "") + ", " + one("s", "b", ", count: 2") + ", " + one("u", "a", "") + "]",
			want:     amount.List{"a": 2, "b": 2},
		},
		"the most of a choice": {requests: "[{name: r, " + alternatives + "}]", want: amount.List{"a": 3, "b": 1}},
		"counts beyond int64": {
			requests: "[{name: r, exactly: {deviceClassName: a, count: 9223372036854775807}}, {name: s, exactly: " +
				"{deviceClassName: a, count: 2}}]",
			want: amount.List{"a": 1<<63 - 1},
		},
		"what a choice was given": {
			requests: "[{name: r, " + alternatives + "}]", results: "[{request: r/z, driver: d, pool: p, device: x}]",
			want: amount.List{"a": 0, "b": 1},
		},
		"what a request for all was given": {
			requests: "[{name: r, exactly: {deviceClassName: a, allocationMode: All}}]",
			results:  "[{request: r, driver: d, pool: p, device: x}, {request: r, driver: d, pool: p, device: y}]",
			want:     amount.List{"a": 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "metadata: {namespace: ns, name: c}\nspec: {devices: {requests: " + test.requests + "}}\n"
			if test.results != "" {
				text += "status: {reservedFor: [{resource: pods, name: p, uid: u}], allocation: {devices: {results: " +
					test.results + "}}}\n"
			}
			c := &resourcev1.ResourceClaim{}
			if err := yaml.UnmarshalStrict([]byte(text), c); err != nil {
				t.Fatal(err)
			}
			want := quota.Charge{ID: "ns/c", Amounts: amount.List{}}
			for class, n := range test.want {
				want.Amounts[class+".deviceclass.resource.k8s.io/devices"] = n
			}
			if test.results != "" {
				want.ReservedFor = []string{"u"}
			}
			if diff := cmp.Diff(want, convert.QuotaCharge(c)); diff != "" {
				t.Errorf("charge (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClaimsOfAPod(t *testing.T) {
	t.Parallel()
	p := &corev1.Pod{}
	p.Namespace = "n"
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "b", ResourceClaimTemplateName: new("t")},
		{Name: "none", ResourceClaimTemplateName: new("t")},
		{Name: "a", ResourceClaimName: new("named")},
		{Name: "again", ResourceClaimName: new("named")},
	}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{
		{Name: "b", ResourceClaimName: new("made")}, {Name: "none"},
	}
	if diff := cmp.Diff([]string{"n/made", "n/named"}, convert.ClaimsOf(p)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}
