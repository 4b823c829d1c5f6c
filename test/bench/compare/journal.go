package main

// journalSuite is plain pods without and with a journal, which tenon-scheduler writes below folder.
func journalSuite(tenon, folder string) suite {
	return suite{
		contenders: []contender{
			{name: "none", path: tenon}, {name: "journal", path: tenon, flags: []string{"--journal=" + folder}},
		},
		base: "none", digits: 3,
		cases: []benchCase{
			{
				name: "p", title: "(p) equal pods", ratioTo: "p",
				load: workload{cpu: "100m", memory: "128Mi"},
			},
			{
				name: "f", title: "(f) 50 alternating sizes", ratioTo: "f",
				load: workload{cpu: "100m", memory: "128Mi", sizes: alternating},
			},
			{
				name: "d", title: "(d) 100 pods/s, open loop", ratioTo: "d", perSecond: 100,
				load: workload{cpu: "100m", memory: "128Mi"},
			},
		},
	}
}
