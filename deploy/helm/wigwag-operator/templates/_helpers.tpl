{{- define "wigwag-operator.labels" -}}
app.kubernetes.io/name: open-feature-operator
app.kubernetes.io/part-of: open-feature-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* An object of a file, in the namespace of the release. Takes `root` and `object`. */}}
{{- define "wigwag-operator.object" -}}
{{- $namespace := .root.Release.Namespace }}
{{- $metadata := .object.metadata }}
{{- if $metadata.namespace }}{{ $_ := set $metadata "namespace" $namespace }}{{ end }}
{{- $labels := include "wigwag-operator.labels" .root | fromYaml }}
{{- $_ := set $metadata "labels" (merge ($metadata.labels | default dict) $labels) }}
{{- range .object.subjects }}{{ $_ := set . "namespace" $namespace }}{{ end }}
---
{{ toYaml .object }}
{{ end }}

{{/* All objects of a file. Takes `root` and `file`. */}}
{{- define "wigwag-operator.objects" -}}
{{- $root := .root }}
{{- range (include "wigwag-operator.file" . | fromYaml).items }}
{{- include "wigwag-operator.object" (dict "root" $root "object" .) }}
{{- end }}
{{- end }}

{{- define "wigwag-operator.file" -}}
{{ .root.Files.Get (printf "files/%s.yaml" .file) }}
{{- end }}

{{- define "wigwag-operator.validates" -}}
{{- if eq (toString .Values.managerConfig.flagsValidationEnabled) "true" }}true{{ end }}
{{- end }}
