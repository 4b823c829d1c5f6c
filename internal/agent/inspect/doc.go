// Package inspect is the agent's answer to "what does the kernel let this pod run on": the cgroups of its containers,
// what each of their files is to have and what it has. The agent serves it as JSON, `tenon explain` shows it.
package inspect
