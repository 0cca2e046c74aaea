{{- define "wigwag-operator.labels" -}}
app.kubernetes.io/name: open-feature-operator
app.kubernetes.io/part-of: open-feature-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* An object of a file, in the namespace of the release or another. Takes `root`, `object`, and perhaps `namespace`. */}}
{{- define "wigwag-operator.object" -}}
{{- $namespace := .root.Release.Namespace }}
{{- $metadata := .object.metadata }}
{{- if $metadata.namespace }}{{ $_ := set $metadata "namespace" $namespace }}{{ end }}
{{- if .namespace }}{{ $_ := set $metadata "namespace" .namespace }}{{ end }}
{{- $labels := include "wigwag-operator.labels" .root | fromYaml }}
{{- $_ := set $metadata "labels" (merge ($metadata.labels | default dict) $labels) }}
{{- range .object.subjects }}{{ $_ := set . "namespace" $namespace }}{{ end }}
---
{{ toYaml .object }}
{{ end }}

{{/* All objects of a file, but with `namespaces` no ClusterRoles. Takes `root` and `file`, and perhaps `namespace`. */}}
{{- define "wigwag-operator.objects" -}}
{{- $root := .root }}
{{- $namespace := .namespace }}
{{- range (include "wigwag-operator.file" . | fromYaml).items }}
{{- if not (and $root.Values.namespaces (hasPrefix "ClusterRole" .kind)) }}
{{- include "wigwag-operator.object" (dict "root" $root "object" . "namespace" $namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the name of a cluster-scoped object ends with, so that operators of different namespaces do not share it. */}}
{{- define "wigwag-operator.suffix" -}}
{{- if .Values.namespaces }}{{ printf "-%s" .Release.Namespace }}{{ end }}
{{- end }}

{{- define "wigwag-operator.file" -}}
{{ .root.Files.Get (printf "files/%s.yaml" .file) }}
{{- end }}

{{- define "wigwag-operator.validates" -}}
{{- if eq (toString .Values.managerConfig.flagsValidationEnabled) "true" }}true{{ end }}
{{- end }}
