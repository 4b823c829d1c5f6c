package tune

import "fmt"

// latencyFile is the file of the longest time that a CPU may take to wake up: "0" for any, "n/a" for a CPU that never
// sleeps, and else microseconds.
func latencyFile(cpu int) string {
	return fmt.Sprintf("sys/devices/system/cpu/cpu%d/power/pm_qos_resume_latency_us", cpu)
}

// limitSleep returns the Settings of the CPUs of pods that bound the time to wake up, in the order of the pods.
func limitSleep(pods []Pod) []Setting {
	var out []Setting
	for _, p := range pods {
		if p.Latency == "" {
			continue
		}
		for _, cpu := range p.CPUs {
			out = append(out, NewSetting(latencyFile(cpu), p.Latency,
				func(string) (string, error) { return p.Latency, nil }))
		}
	}
	return out
}

// cannotSleep reports whether no driver lets CPUs of the machine sleep deeply, as in virtual machines: then the files
// have no effect.
func cannotSleep(files Files) bool {
	driver, err := files.Read("sys/devices/system/cpu/cpuidle/current_driver")
	return err != nil || driver == "" || driver == "none"
}
