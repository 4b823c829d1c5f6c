package apply

// KubeletKeepsMemory replaces the option of that name: a kubelet may be restarted with another memory manager.
func (e *Engine) KubeletKeepsMemory(keeps bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.o.KubeletKeepsMemory == keeps {
		return
	}
	e.o.KubeletKeepsMemory = keeps
	e.wake()
}
