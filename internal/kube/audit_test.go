package kube_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestDifferencesBetweenAccountsAndPods(t *testing.T) {
	t.Parallel()
	held, other := pod("held", "n1", 2, "0-1"), pod("other", "n2", 2, "2-3")
	terminal := pod("done", "n1", 2, "4-5")
	terminal.Status.Phase = corev1.PodSucceeded
	moved := held.DeepCopy()
	moved.Spec.NodeName = "n2"
	changed := pod("held", "n1", 2, "6-7")
	changed.UID = held.UID
	cases := map[string]struct {
		put, seen []*corev1.Pod
		want      []kube.Difference
	}{
		"equal":                          {put: []*corev1.Pod{held, other}, seen: []*corev1.Pod{other, held}},
		"a pod that ended holds nothing": {put: []*corev1.Pod{held}, seen: []*corev1.Pod{held, terminal}},
		"a pod that the account never heard": {
			put: []*corev1.Pod{held}, seen: []*corev1.Pod{held, other},
			want: []kube.Difference{{Node: "n2", UID: string(other.UID)}},
		},
		"a pod that is gone and still held": {
			put: []*corev1.Pod{held, other}, seen: []*corev1.Pod{other},
			want: []kube.Difference{{Node: "n1", UID: string(held.UID)}},
		},
		"a pod held on another node": {
			put: []*corev1.Pod{held}, seen: []*corev1.Pod{moved},
			want: []kube.Difference{{Node: "n1", UID: string(held.UID)}},
		},
		"a pod held with other CPUs": {
			put: []*corev1.Pod{held}, seen: []*corev1.Pod{changed},
			want: []kube.Difference{{Node: "n1", UID: string(held.UID)}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kube.NewStore()
			for _, p := range c.put {
				s.PutPod(p)
			}
			found := s.Differences(c.seen)
			if diff := cmp.Diff(c.want, found); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, d := range found {
				s.Repair(d, c.seen)
			}
			if left := s.Differences(c.seen); len(left) != 0 {
				t.Errorf("%v are left after the repair", left)
			}
		})
	}
}

func TestReservationInFlightIsNotADifference(t *testing.T) {
	t.Parallel()
	s := kube.NewStore()
	s.PutNode(node("n", nil))
	s.PutTopology(topology(t, "n", machine(t, 1, 4)))
	pending := pod("p", "", 2, "")
	testkit.Check(t, s.Commit("n", mustOffer(t, s, pending)))
	if got := s.Differences([]*corev1.Pod{pending}); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
	got := s.Differences(nil)
	if len(got) != 1 {
		t.Fatalf("got %v, want the reservation of a pod that is gone", got)
	}
	s.Repair(got[0], nil)
	if _, _, held := s.Holder(string(pending.UID)); held || len(s.Differences(nil)) != 0 {
		t.Error("the reservation of a pod that is gone is left after the repair")
	}
}

// Q1: status.used is wrong for good. The account of quotas is compared with the pods too.
func TestDifferencesBetweenQuotasAndPods(t *testing.T) {
	t.Parallel()
	_, s := clockAt()
	if found := s.Differences([]*corev1.Pod{asking("p", "team", "n", 1)}); found != nil {
		t.Errorf("a scheduler without the plugin keeps no account: %v", found)
	}
	testkit.Check(t, s.Configure(quota.Config{}, quota.Rules{}))
	same, gone, moved, ended := asking("same", "team", "n", 1), asking("gone", "team", "n", 2),
		asking("moved", "team", "", 3), asking("ended", "team", "n", 4)
	for _, p := range []*corev1.Pod{same, gone, moved, ended} {
		s.PutPod(p)
	}
	moved, ended = moved.DeepCopy(), ended.DeepCopy()
	moved.Spec.NodeName, ended.Status.Phase = "n", corev1.PodFailed
	pods := []*corev1.Pod{same, moved, ended, asking("new", "team", "", 5)}
	var uids []string
	for _, d := range s.Differences(pods) {
		uids = append(uids, d.UID)
		s.Repair(d, pods)
	}
	want := []string{string(pods[3].UID), string(ended.UID), string(gone.UID), string(moved.UID)}
	slices.Sort(uids)
	slices.Sort(want)
	if diff := cmp.Diff(want, uids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if left := s.Differences(pods); left != nil {
		t.Errorf("%v are left after the repair", left)
	}
	_, again := clockAt()
	for _, p := range pods {
		again.PutPod(p)
	}
	if hash(s) != hash(again) {
		t.Errorf("(-rebuilt +repaired):\n%s", cmp.Diff(again.Reports(), s.Reports()))
	}
	s.Read(func(a *quota.Account) {
		f := a.Forest()
		f.Add(f.Find(quota.Default), quota.Used, f.Vector(amount.List{"cpu": 1}))
	})
	for _, d := range s.Differences(pods) {
		if d.Quota != quota.Default {
			t.Errorf("%+v differs, want only the use of %s", d, quota.Default)
		}
		s.Repair(d, pods)
	}
	if hash(s) != hash(again) {
		t.Errorf("(-rebuilt +repaired):\n%s", cmp.Diff(again.Reports(), s.Reports()))
	}
}
