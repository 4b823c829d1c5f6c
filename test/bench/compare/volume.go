package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// volumeClass is the StorageClass of the volumes, volumeDriver their CSI driver, of which a node may have
	// volumesOfNode.
	volumeClass   = "bench"
	volumeDriver  = "csi.example.com"
	volumesOfNode = 39
	// bindCompleted says in the annotations of a claim that it is bound.
	bindCompleted = "pv.kubernetes.io/bind-completed"
)

func claimName(i int) string { return fmt.Sprintf("data-%05d", i) }

// setVolumes creates n claims, each bound to a volume that nodes of one zone can reach, and the limits of their driver
// on each node; or deletes all of that. The class binds volumes when they are first used. No controller runs that would
// act on them.
func (c *cluster) setVolumes(ctx context.Context, nodes, n int, wanted bool) error {
	if wanted == c.volumes {
		return nil
	}
	c.volumes = wanted
	storage, core := c.kube.StorageV1(), c.kube.CoreV1()
	if !wanted {
		none, all := metav1.DeleteOptions{}, metav1.ListOptions{}
		return errors.Join(storage.StorageClasses().Delete(ctx, volumeClass, none),
			core.PersistentVolumeClaims(namespace).DeleteCollection(ctx, none, all),
			core.PersistentVolumes().DeleteCollection(ctx, none, all),
			storage.CSINodes().DeleteCollection(ctx, none, all))
	}
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	if _, err := storage.StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: volumeClass}, Provisioner: volumeDriver, VolumeBindingMode: &mode,
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	limit := int32(volumesOfNode)
	if err := each(ctx, nodes, func(ctx context.Context, i int) error {
		_, err := storage.CSINodes().Create(ctx, &storagev1.CSINode{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)},
			Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
				Name: volumeDriver, NodeID: nodeName(i), Allocatable: &storagev1.VolumeNodeResources{Count: &limit},
			}}},
		}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	return each(ctx, n, c.addVolume)
}

// addVolume creates a claim and its volume.
func (c *cluster) addVolume(ctx context.Context, i int) error {
	name, class := claimName(i), volumeClass
	access := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	claim, err := c.kube.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Annotations: map[string]string{bindCompleted: "yes"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: access, StorageClassName: &class, VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: access, StorageClassName: class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: volumeDriver, VolumeHandle: name},
			},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, UID: claim.UID,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn,
					Values: []string{fmt.Sprintf("zone-%d", i%3)},
				}}}},
			}},
		},
	}, metav1.CreateOptions{})
	return err
}
