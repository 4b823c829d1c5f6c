package deploy_test

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy"
)

func definitions(t *testing.T) map[string]*apiextensions.CustomResourceDefinition {
	t.Helper()
	all := map[string]*apiextensions.CustomResourceDefinition{}
	for _, doc := range deploy.CRDs() {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(doc, &crd); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		into, s := &apiextensions.CustomResourceDefinition{}, runtime.NewScheme()
		if err := errors.Join(apiextensionsv1.RegisterConversions(s), s.Convert(&crd, into, nil)); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				into.Status.StoredVersions = []string{v.Name}
			}
		}
		all[crd.Name] = into
	}
	return all
}

// decode reads whole numbers as the API server does.
func decode(text string, into *map[string]any) error {
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// The API server's own validation: schemas are structural, expressions compile and cost little.
func TestTheAPIServerAcceptsTheCRDs(t *testing.T) {
	t.Parallel()
	for name, crd := range definitions(t) {
		if errs := validation.ValidateCustomResourceDefinition(t.Context(), crd); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs.ToAggregate())
		}
	}
}

func TestTheCRDsRefuseWhatNeedsNoOtherObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		crd, object string
		want        string // "" for an object that is accepted
	}{
		"quantities in every spelling": {
			"elasticquotas.scheduling.sigs.k8s.io",
			`{spec: {min: {cpu: 1, memory: 1.5Gi}, max: {cpu: "2", memory: 2e9, nvidia.com/gpu: 0}}}`, "",
		},
		"no limits at all": {"elasticquotas.scheduling.x-k8s.io", `{spec: {}}`, ""},
		"a min that is not a quantity": {
			"elasticquotas.scheduling.sigs.k8s.io", `{spec: {min: {cpu: many}}}`, "spec.min.cpu in body should match",
		},
		"a min that is a list": {
			"elasticquotas.scheduling.sigs.k8s.io", `{spec: {min: [cpu]}}`, "spec.min in body must be of type object",
		},
		"a gang": {
			"podgroups.scheduling.sigs.k8s.io",
			`{spec: {minMember: 3, minResources: {cpu: 1}, scheduleTimeoutSeconds: 60}, status: {phase: Whatever}}`, "",
		},
		"a gang that says nothing": {"podgroups.scheduling.x-k8s.io", `{spec: {minMember: 0}}`, ""},
		"a minimum that is a string": {
			"podgroups.scheduling.x-k8s.io", `{spec: {minMember: "3"}}`,
			"spec.minMember in body must be of type integer",
		},
		"a profile": {
			"elasticquotaprofiles.quota.koordinator.sh",
			`{spec: {quotaName: q, quotaLabels: {a: b}, resourceRatio: "0.9", nodeSelector: {}}}`, "",
		},
		"a profile without a quota": {
			"elasticquotaprofiles.quota.koordinator.sh", `{spec: {nodeSelector: {}}}`, "spec.quotaName",
		},
		"a profile without a selector": {
			"elasticquotaprofiles.quota.koordinator.sh", `{spec: {quotaName: q}}`, "spec.nodeSelector",
		},
		"a ratio that is not a number": {
			"elasticquotaprofiles.quota.koordinator.sh",
			`{spec: {quotaName: q, nodeSelector: {}, resourceRatio: 90%}}`, "spec.resourceRatio",
		},
		"a negative ratio": {
			"elasticquotaprofiles.quota.koordinator.sh",
			`{spec: {quotaName: q, nodeSelector: {}, resourceRatio: "-1"}}`, "spec.resourceRatio",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crd := definitions(t)[test.crd]
			if crd == nil {
				t.Fatalf("no %s", test.crd)
			}
			var object map[string]any
			if err := decode(test.object, &object); err != nil {
				t.Fatal(err)
			}
			properties, err := apiextensions.GetSchemaForVersion(crd, "v1alpha1")
			if err != nil {
				t.Fatal(err)
			}
			validator, _, err := apivalidation.NewSchemaValidator(properties.OpenAPIV3Schema)
			if err != nil {
				t.Fatal(err)
			}
			errs := apivalidation.ValidateCustomResource(nil, object, validator)
			switch got := errs.ToAggregate(); {
			case test.want == "" && got != nil:
				t.Errorf("refused: %v", got)
			case test.want != "" && (got == nil || !strings.Contains(got.Error(), test.want)):
				t.Errorf("got %v, want %q in it", got, test.want)
			}
		})
	}
}
