// Package deviceplugin registers device plugins with the kubelet whose devices are placeholders: containers that get
// one are created as they would be without it.
//
// A kubelet that registers its Node while its folder of device plugins is empty, as on a new disk before the runtime is
// ready, takes the Node for a new one and sets all extended resources of it to 0, those of Tenon too. Pods that run and
// request one fail then (OutOfkoordinator.sh/gpu-core). With a plugin, such as that of tenon.sh/presence, the folder
// has the kubelet's checkpoint, which outlives the plugin.
package deviceplugin
