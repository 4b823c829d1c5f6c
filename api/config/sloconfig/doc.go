// Package sloconfig reads the ConfigMap slo-controller-config, in the shapes of Koordinator:
//
//	colocation-config                       the fields of a Strategy, and nodeConfigs
//	resource-threshold-config               clusterStrategy and nodeStrategies
//	resource-qos-config                     the same
//	cpu-burst-config, system-config         the same
//	host-application-config                 applications and nodeConfigs
//
// Of a list for nodes, the first item whose nodeSelector matches the Node's labels counts, over what is said for all
// nodes. An item without a nodeSelector matches no Node, {} matches each. All but the first key are what NodeSLOs say.
// Nothing in a value is ignored: unknown fields and values out of range are errors, which name the key, the field and
// what is allowed. Other keys are in Config.Ignored.
package sloconfig
