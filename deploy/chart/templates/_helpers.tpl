{{/* Labels of an object: (dict "root" $ "name" NAME). */}}
{{- define "tenon.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: tenon
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* Labels of objects that belong to no component: the root. */}}
{{- define "tenon.common" -}}
{{- include "tenon.labels" (dict "root" . "name" "tenon") }}
{{- end }}

{{/* Reference of an image: (dict "root" $ "image" IMAGE). */}}
{{- define "tenon.image" -}}
{{- with .root.Values.image.registry }}{{ . }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "tenon.pull" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the pods of a Deployment run, and as whom: (dict "root" $ "name" NAME "of" VALUES). */}}
{{- define "tenon.pod" -}}
serviceAccountName: {{ .name }}
automountServiceAccountToken: true
priorityClassName: {{ .of.priorityClassName }}
{{- include "tenon.pull" .root }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .of.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .of.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- /* Apart by zone too, but not as a second constraint: nodes without one of the constraints' labels get no score. */}}
{{- $zones := dict "topologyKey" "topology.kubernetes.io/zone" "labelSelector" (dict "matchLabels" (dict
  "app.kubernetes.io/name" .name)) "matchLabelKeys" (list "pod-template-hash") }}
{{- $apart := dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100
  "podAffinityTerm" $zones))) }}
affinity:
  {{- toYaml (mergeOverwrite $apart (.of.affinity | default dict)) | nindent 2 }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  matchLabelKeys: [pod-template-hash]
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* Rights of a container that needs none. */}}
{{- define "tenon.restricted" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end }}

{{/* Four fifths of an amount of memory in Mi or Gi, as Go's runtime reads it; empty for other amounts. */}}
{{- define "tenon.heap" -}}
{{- if regexMatch "^[0-9]+[MG]i$" . }}
{{- $mebi := regexFind "^[0-9]+" . | int64 }}
{{- if hasSuffix "Gi" . }}{{ $mebi = mul $mebi 1024 }}{{ end }}
{{- div (mul $mebi 4) 5 }}MiB
{{- end }}
{{- end }}

{{/* The first ElasticQuotaArgs of the scheduler's configuration; empty for the defaults. */}}
{{- define "tenon.quotaArgs" -}}
{{- $args := "" }}
{{- range (.Values.scheduler.config | default dict).profiles }}
{{- range .pluginConfig }}
{{- if and (eq .name "ElasticQuota") (not $args) }}{{ $args = toYaml .args }}{{ end }}
{{- end }}
{{- end }}
{{- $args }}
{{- end }}

{{/* Names of the schedulers whose pods count, joined by commas: those that this release serves or trusts. */}}
{{- define "tenon.schedulerNames" -}}
{{- $names := .Values.scheduler.names }}
{{- with (.Values.scheduler.config | default dict).profiles }}
{{- $names = list }}
{{- range . }}{{ $names = append $names (.schedulerName | default "default-scheduler") }}{{ end }}
{{- end }}
{{- join "," (concat $names (.Values.scheduler.trusted | default list) | uniq) }}
{{- end }}

{{/* Whether a pod that is resized has its place by Tenon, or names its quota, as an expression. */}}
{{- define "tenon.placed" -}}
(has(oldObject.metadata.labels) && ('koordinator.sh/qosClass' in oldObject.metadata.labels
|| 'quota.scheduling.koordinator.sh/name' in oldObject.metadata.labels))
|| (has(oldObject.metadata.annotations)
&& 'scheduling.koordinator.sh/resource-status' in oldObject.metadata.annotations)
{{- end }}

{{/* The kinds of operators that have a rule, by API group. Of another group, all kinds may be read. */}}
{{- define "tenon.operators" -}}
kubeflow.org: [pytorchjobs, tfjobs, xgboostjobs, jaxjobs, paddlejobs, mpijobs]
trainer.kubeflow.org: [trainjobs]
jobset.x-k8s.io: [jobsets]
leaderworkerset.x-k8s.io: [leaderworkersets]
ray.io: [rayclusters, rayjobs, rayservices]
flux-framework.org: [miniclusters]
grove.io: [podcliquesets, podcliques, podcliquescalinggroups]
nvidia.com: [dynamographdeployments]
serving.kserve.io: [llminferenceservices]
workload.codeflare.dev: [appwrappers]
argoproj.io: [workflows, cronworkflows]
{{- end }}

{{/* The condition of webhooks for pods of operators: most pods are of ReplicaSets and DaemonSets, which have no gangs. */}}
{{- define "tenon.operatorPods" -}}
- name: has-a-controller-with-gangs-and-names-no-gang
  expression: >-
    has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(r, has(r.controller) && r.controller
    && !(r.apiVersion == 'apps/v1' && r.kind in ['ReplicaSet', 'DaemonSet']) && r.kind != 'Node')
    && !(has(object.metadata.labels) && object.metadata.labels.exists(k, k in ['pod-group.scheduling.sigs.k8s.io',
    'scheduling.x-k8s.io/pod-group', 'pod-group.scheduling.sigs.k8s.io/name']))
{{- end }}

{{/* The condition of webhooks for pods: a pod of another scheduler is not asked about. */}}
{{- define "tenon.ownPods" -}}
- name: has-a-scheduler-of-tenon
  expression: >-
    (has(object.spec.schedulerName) ? object.spec.schedulerName : 'default-scheduler')
    in ['{{ include "tenon.schedulerNames" . | splitList "," | join "', '" }}']
{{- end }}
