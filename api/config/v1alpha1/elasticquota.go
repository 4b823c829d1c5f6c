package v1alpha1

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ElasticQuotaArgs are the arguments of the plugin ElasticQuota, which has the names and meanings of Koordinator's.
//
// +kubebuilder:object:root=true
type ElasticQuotaArgs struct {
	metav1.TypeMeta `json:",inline"`

	// EnableCheckParentQuota compares at every quota from the pod's own up to the top of its tree. Default: true; with
	// false a quota's children can use more than its max together.
	EnableCheckParentQuota *bool `json:"enableCheckParentQuota,omitempty"`
	// EnableRuntimeQuota limits the use to the runtime. Default: true; with false it is limited to max.
	EnableRuntimeQuota *bool `json:"enableRuntimeQuota,omitempty"`
	// EnableMinQuotaScale shares the total in proportion to min if it is smaller than the sum of all min. Default:
	// true; with false the sum of all runtimes can exceed the total.
	EnableMinQuotaScale *bool `json:"enableMinQuotaScale,omitempty"`
	// DisableDefaultQuotaPreemption leaves pods of the default quota pending if the quota's max rejects them. Default:
	// true; with false they preempt pods of the default quota.
	DisableDefaultQuotaPreemption *bool `json:"disableDefaultQuotaPreemption,omitempty"`
	// DefaultQuotaGroupMax is the max of the default quota unless an ElasticQuota koordinator-default-quota sets one,
	// as quantities by resource, 0 or more. Default: no limit.
	DefaultQuotaGroupMax corev1.ResourceList `json:"defaultQuotaGroupMax,omitempty"`
	// SystemQuotaGroupMax is accepted from configurations of Koordinator, without effect: the system quota is never
	// limited.
	SystemQuotaGroupMax corev1.ResourceList `json:"systemQuotaGroupMax,omitempty"`
	// QuotaGroupNamespace is the namespace of the quotas koordinator-root-quota, koordinator-system-quota and
	// koordinator-default-quota. Default: koordinator-system.
	QuotaGroupNamespace string `json:"quotaGroupNamespace,omitempty"`
	// MissingQuotaPolicy applies to pods that name a missing quota: Default (default) admits them to the default quota
	// until the quota exists, Reject leaves them pending.
	MissingQuotaPolicy string `json:"missingQuotaPolicy,omitempty"`
	// DeviceClassMappings count the devices of ResourceClaims under the names of resources, as Kueue's configuration
	// does. The devices of a class that none names count as CLASS.deviceclass.resource.k8s.io/devices.
	DeviceClassMappings []DeviceClassMapping `json:"deviceClassMappings,omitempty"`

	// MonitorAllQuotas revokes what a quota uses above its runtime. Default: true. This and the three arguments below
	// take effect in the manager; the scheduler only validates them.
	MonitorAllQuotas *bool `json:"monitorAllQuotas,omitempty"`
	// DelayEvictTime is how long a quota must exceed its share without a break before pods are evicted. Default: 120s.
	DelayEvictTime *metav1.Duration `json:"delayEvictTime,omitempty"`
	// RevokePodInterval is the time between two passes. Default: 1s.
	RevokePodInterval *metav1.Duration `json:"revokePodInterval,omitempty"`
	// MaxRevokedPerQuota is the most pods of one quota that are evicted in any minute, 0 or more. Default: 30; 0 does
	// not limit them. A larger gang that can only be evicted as a whole is not revoked.
	MaxRevokedPerQuota *int32 `json:"maxRevokedPerQuota,omitempty"`
	// MaxRevokedPerMinute is the same for all quotas together, 0 or more. Default: 60; 0 does not limit them.
	MaxRevokedPerMinute *int32 `json:"maxRevokedPerMinute,omitempty"`
	// RevokePolicy is OnDemand (default: only for pending pods), Strict (always) or DryRun (record only).
	RevokePolicy string `json:"revokePolicy,omitempty"`
}

// DeviceClassMapping gives the devices of DeviceClasses a name in quotas.
type DeviceClassMapping struct {
	// Name is that of a resource, such as the one that device plugins give: nvidia.com/gpu. Only max limits it, as with
	// the devices of a class.
	Name corev1.ResourceName `json:"name"`
	// DeviceClassNames are the classes, 1 or more. A class can be in one mapping.
	DeviceClassNames []string `json:"deviceClassNames"`
}

// Values of arguments of ElasticQuota.
const (
	MissingQuotaDefault = "Default"
	MissingQuotaReject  = "Reject"

	RevokeOnDemand = "OnDemand"
	RevokeStrict   = "Strict"
	RevokeDryRun   = "DryRun"
)

// SetDefaults fills what is not said.
func (a *ElasticQuotaArgs) SetDefaults() {
	yes := true
	for _, b := range []**bool{
		&a.EnableCheckParentQuota, &a.EnableRuntimeQuota, &a.EnableMinQuotaScale, &a.DisableDefaultQuotaPreemption,
		&a.MonitorAllQuotas,
	} {
		*b = cmp.Or(*b, &yes)
	}
	a.DelayEvictTime = cmp.Or(a.DelayEvictTime, &metav1.Duration{Duration: 2 * time.Minute})
	a.RevokePodInterval = cmp.Or(a.RevokePodInterval, &metav1.Duration{Duration: time.Second})
	a.MaxRevokedPerQuota = cmp.Or(a.MaxRevokedPerQuota, new(int32(30)))
	a.MaxRevokedPerMinute = cmp.Or(a.MaxRevokedPerMinute, new(int32(60)))
	a.QuotaGroupNamespace = cmp.Or(a.QuotaGroupNamespace, "koordinator-system")
	a.MissingQuotaPolicy = cmp.Or(a.MissingQuotaPolicy, MissingQuotaDefault)
	a.RevokePolicy = cmp.Or(a.RevokePolicy, RevokeOnDemand)
}

// Validate returns every field whose value cannot be used.
func (a *ElasticQuotaArgs) Validate() field.ErrorList {
	errs := slices.Concat(
		oneOf(field.NewPath("missingQuotaPolicy"), a.MissingQuotaPolicy, MissingQuotaDefault, MissingQuotaReject),
		oneOf(field.NewPath("revokePolicy"), a.RevokePolicy, RevokeOnDemand, RevokeStrict, RevokeDryRun),
		atLeastZero("defaultQuotaGroupMax", a.DefaultQuotaGroupMax),
		atLeastZero("systemQuotaGroupMax", a.SystemQuotaGroupMax),
	)
	errs = append(errs, validateMappings(field.NewPath("deviceClassMappings"), a.DeviceClassMappings)...)
	for name, n := range map[string]*int32{
		"maxRevokedPerQuota": a.MaxRevokedPerQuota, "maxRevokedPerMinute": a.MaxRevokedPerMinute,
	} {
		if n != nil && *n < 0 {
			errs = append(errs, field.Invalid(field.NewPath(name), *n, "must be 0 or more"))
		}
	}
	if d := a.DelayEvictTime; d != nil && d.Duration < 0 {
		errs = append(errs, field.Invalid(field.NewPath("delayEvictTime"), d.Duration.String(), "must be 0 or more"))
	}
	if d := a.RevokePodInterval; d != nil && d.Duration <= 0 {
		errs = append(errs,
			field.Invalid(field.NewPath("revokePodInterval"), d.Duration.String(), "must be more than 0"))
	}
	return errs
}

func validateMappings(path *field.Path, mappings []DeviceClassMapping) (errs field.ErrorList) {
	names, classes := map[corev1.ResourceName]bool{}, map[string]bool{}
	for i := range mappings {
		at, m := path.Index(i), &mappings[i]
		for _, problem := range validation.IsQualifiedName(string(m.Name)) {
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, problem))
		}
		switch domain, _, own := strings.Cut(string(m.Name), "/"); {
		case !own, domain == "koordinator.sh":
			errs = append(errs, field.Invalid(at.Child("name"), m.Name, "must count devices and have a domain, such "+
				"as nvidia.com/gpu; amounts of koordinator.sh are in percent or bytes"))
		}
		if names[m.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), m.Name))
		}
		names[m.Name] = true
		if len(m.DeviceClassNames) == 0 {
			errs = append(errs, field.Required(at.Child("deviceClassNames"), "must name 1 DeviceClass or more"))
		}
		for j, class := range m.DeviceClassNames {
			one := at.Child("deviceClassNames").Index(j)
			for _, problem := range validation.IsDNS1123Subdomain(class) {
				errs = append(errs, field.Invalid(one, class, problem))
			}
			if classes[class] {
				errs = append(errs, field.Duplicate(one, class))
			}
			classes[class] = true
		}
	}
	return errs
}

func atLeastZero(name string, list corev1.ResourceList) (errs field.ErrorList) {
	for _, resource := range slices.Sorted(maps.Keys(list)) {
		if q := list[resource]; q.Sign() < 0 {
			path := field.NewPath(name).Key(string(resource))
			errs = append(errs, field.Invalid(path, q.String(), "must be 0 or more"))
		}
	}
	return errs
}
