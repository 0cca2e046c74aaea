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
{{- $suffix := include "wigwag-operator.suffix" .root }}
{{- if hasPrefix "ClusterRole" .object.kind }}{{ $_ := set $metadata "name" (print $metadata.name $suffix) }}{{ end }}
{{- with .object.roleRef }}
{{- if eq .kind "ClusterRole" }}{{ $_ := set . "name" (print .name $suffix) }}{{ end }}
{{- end }}
{{- range .object.rules }}
{{- if has "admissionregistration.k8s.io" .apiGroups }}
{{- $_ := set . "resourceNames" (list (print (first .resourceNames) $suffix)) }}
{{- end }}
{{- end }}
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

{{- define "wigwag-operator.file" -}}
{{ .root.Files.Get (printf "files/%s.yaml" .file) }}
{{- end }}

{{/* What the names of webhook configurations end with, for an operator of some namespaces. */}}
{{- define "wigwag-operator.namespaced" -}}
{{- if .Values.namespaces }}{{ printf "-%s" .Release.Namespace }}{{ end }}
{{- end }}

{{/* What is added to the names of objects of the whole cluster, for an operator of one revision of several. */}}
{{- define "wigwag-operator.suffix" -}}
{{- with .Values.revision }}{{ if ne . "default" }}-{{ . }}{{ end }}{{ end }}
{{- end }}

{{/* The file with the webhooks; that of another revision than `default` is written for `canary`. */}}
{{- define "wigwag-operator.webhooks" -}}
{{- $revision := .Values.revision }}
{{- $file := ternary "webhooks" (ternary "revisions-webhooks" "canary-webhooks" (eq $revision "default")) (empty $revision) }}
{{- $text := include "wigwag-operator.file" (dict "root" . "file" $file) }}
{{- if eq $file "canary-webhooks" }}
{{- $text = $text | replace "open-feature-operator-canary" "open-feature-operator-system" }}
{{- $text = $text | replace "-configuration-canary" (printf "-configuration-%s" $revision) }}
{{- $text = $text | replace "values: [canary]" (printf "values: [%s]" $revision) | replace "''canary''" (printf "''%s''" $revision) | replace "'canary'" (printf "'%s'" $revision) }}
{{- end }}
{{- $text }}
{{- end }}

{{- define "wigwag-operator.validates" -}}
{{- if eq (toString .Values.managerConfig.flagsValidationEnabled) "true" }}true{{ end }}
{{- end }}
